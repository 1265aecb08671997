// plait study fit DIR [--json] [--confidence SHARE] [--bootstraps N] [--seed N]
#include <iostream>
#include <memory>

#include "core/message.h"
#include "study/fit_report.h"
#include "study/run_losses.h"
#include "study_commands.h"
#include "usage.h"

namespace plait {

void add_study_fit_command(CLI::App& study, int& status) {
  struct Options {
    std::string folder;
    study::ScalingLawOptions fit;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = study.add_subcommand("fit", "Fit scaling laws to the validation losses of the runs below a folder");
  command->add_option("DIR", options->folder, "Folder that holds the run directories (run.dir of the runs)")->required();
  command->add_option("--confidence", options->fit.confidence, "Of intervals")
      ->capture_default_str()
      ->check(number_in(0.5, 0.999));
  command->add_option("--bootstraps", options->fit.bootstraps, "Data sets that are resampled for the intervals")
      ->capture_default_str()
      ->check(whole_number_in(10, 1'000'000));
  command->add_option("--seed", options->fit.seed, "Seed of the resampling")
      ->capture_default_str()
      ->check(whole_number(options->fit.seed));
  command->add_flag("--json", options->json, "One JSON document instead of the page");
  command->callback([options, &status] {
    const study::RunLosses losses = study::read_run_losses(options->folder);
    for (const auto& [directory, reason] : losses.left_out)
      message_to_stderr("left out: " + directory.string() + ": " + reason);
    const study::LossFit fit = study::fit_losses(losses.points(), options->fit);
    if (options->json) {
      std::cout << study::to_json(fit).dump(2) << '\n';
    } else {
      std::cout << study::to_markdown(fit);
    }
    status = fit.refused().empty() ? 0 : 1;
  });
}

}  // namespace plait
