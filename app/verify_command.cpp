// plait verify CONFIG [--json] [--junit FILE] [--strict] [--layout LAYOUT ...] [--set path=value ...]
#include <cstdio>
#include <iostream>
#include <memory>

#include "commands.h"
#include "config/config.h"
#include "core/error.h"
#include "core/file.h"
#include "interop/trained_model.h"
#include "verify/report.h"
#include "verify/verify.h"
#include "verify/verify_job.h"

namespace plait {
namespace {

struct VerifyOptions {
  std::string config, junit, job;
  std::vector<std::string> set, layouts;
  bool json = false, strict = false, share_devices = false;
};

int run(const VerifyOptions& o, int argc, char** argv) {
  const verify::ConfigSource source = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = o.set;
    if (o.share_devices) all.emplace_back("launch.ranks_per_device=auto");
    all.insert(all.end(), overrides.begin(), overrides.end());
    return load_config(o.config, all, interop::read_model_directory);
  };
  if (!o.job.empty()) return verify::run_verify_rank(verify::verify_job_from(o.job));
  // Checked first: minutes of work must not end with a file that cannot be written.
  if (!o.junit.empty()) require_writable(o.junit);
  verify::VerifyTable table(detect_terminal(o.json ? stderr : stdout));
  const verify::VerifyReport report =
      verify::verify({.config = source, .layouts = o.layouts, .argv = std::vector<std::string>(argv, argv + argc), .parts = {}},
                     table.events());
  table.summarize(report);
  if (o.json) std::cout << to_json(report).dump(2) << '\n';
  if (!o.junit.empty()) write_output(o.junit, to_junit(report));
  for (const verify::ModelReport& model : report.models) {
    if (!model.failure.empty()) throw Error(model.failure);
  }
  return report.failed() > 0 || (o.strict && report.weak()) ? 1 : 0;
}

}  // namespace

void add_verify_command(CLI::App& app, int& status, int argc, char** argv) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "Prove that parallel layouts compute what one rank computes");
  command->add_option("CONFIG", o->config, "Configuration (YAML); its section `verify` lists the layouts")->required();
  command->add_flag("--json", o->json, "One JSON document on stdout, the table on stderr");
  command->add_option("--junit", o->junit, "Write the results as JUnit XML")->type_name("FILE");
  command->add_flag("--strict", o->strict, "Fail (exit status 1) where a bound is too weak to catch a fault");
  command->add_flag("--share-devices", o->share_devices,
                    "Let ranks share GPUs if there are more ranks than GPUs (launch.ranks_per_device=auto)");
  command
      ->add_option("--layout", o->layouts,
                   "Verify this layout instead of those in CONFIG: \"pipeline=2 tensor=2 zero=1\", or all (repeatable)")
      ->type_name("LAYOUT");
  command->add_option("--set", o->set, "Override a configuration value (repeatable)")->type_name("PATH=VALUE");
  // One rank of one job: verify starts itself with this option if ranks are processes.
  command->add_option("--job", o->job)->group("");
  command->callback([o, &status, argc, argv] { status = run(*o, argc, argv); });
}

}  // namespace plait
