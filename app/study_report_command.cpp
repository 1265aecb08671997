// plait study report DIR, plait study compare OLD NEW [--json] [--junit FILE] [--allow-other-machine]
#include <fstream>
#include <iostream>
#include <memory>

#include "core/error.h"
#include "core/terminal.h"
#include "study/comparison.h"
#include "study/report/report.h"
#include "study_commands.h"

namespace plait {
namespace {

struct CompareOptions {
  std::string before, after, junit;
  bool json = false;
  study::ComparisonOptions comparison;
};

int run_compare(const CompareOptions& o) {
  const study::Comparison comparison = study::compare(study::read_study(o.before), study::read_study(o.after), o.comparison);
  std::ofstream junit;  // opened only when there is something to write: readers choke on an empty file
  if (!o.junit.empty()) {
    junit.open(o.junit);
    if (!junit) throw ConfigError({{"--junit", o.junit, "cannot be written", "", 0}});
  }
  if (o.json) {
    std::cout << to_json(comparison).dump(2) << '\n';
  } else {
    std::cout << comparison_text(comparison, terminal_width(stdout));
  }
  if (!o.junit.empty() && !(junit << to_junit(comparison) << std::flush)) throw Error(o.junit + ": writing failed");
  return comparison.is_regression() ? 1 : 0;
}

}  // namespace

void add_study_report_command(CLI::App& study, int& status) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command = study.add_subcommand("report", "Write the page and the tables of a study again, from its data");
  command->add_option("DIR", *folder, "The study's folder")->required();
  command->callback([folder, &status] {
    const study::StudyData data = study::read_study(*folder);
    for (const std::filesystem::path& path : study::write_report(data, data.folder)) std::cout << path.string() << '\n';
    status = 0;
  });
}

void add_study_compare_command(CLI::App& study, int& status) {
  auto o = std::make_shared<CompareOptions>();
  CLI::App* command = study.add_subcommand("compare", "Say of each point of two studies whether it became slower");
  command->add_option("OLD", o->before, "The folder of the study to compare with")->required();
  command->add_option("NEW", o->after, "The folder of the study to judge")->required();
  command->add_flag("--json", o->json, "One JSON document");
  command->add_option("--junit", o->junit, "Write the results as JUnit XML")->type_name("FILE");
  command->add_flag("--allow-other-machine", o->comparison.allow_other_machine, "Compare studies of different machines");
  command->callback([o, &status] { status = run_compare(*o); });
}

}  // namespace plait
