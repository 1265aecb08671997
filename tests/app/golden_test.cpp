// What the main commands print in terminals of 80 and 120 columns, as tests/golden/ keeps it. Where outputs changed on purpose:
//   PLAIT_UPDATE_DOCS=1 build/dev/tests/test_app --gtest_filter='*Golden*'
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>

#include "core/terminal.h"
#include "program_test.h"

namespace plait::app {
namespace {

// What differs from run to run and from machine to machine: times, rates, hashes, the machine's name.
enum class Mask { none, numbers };

struct Shown {
  std::string name, arguments;
  Mask mask = Mask::none;
  std::string from = "";  // of the output, from the first line that holds this
};

void PrintTo(const Shown& shown, std::ostream* out) { *out << shown.name; }

const char* const text_data = "data: {train: [\"@/text.txt\"], sequence_length: 32, validation_fraction: 0.25}\n";

std::string configs(const std::string& name) { return std::string(test_paths::source) + "/configs/" + name; }

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

// Columns are as wide as their numbers, so spaces go with these, and so does where a line is broken.
std::string without_numbers(const std::string& text) {
  static const std::regex number(R"([-+]?\b\d+(\.\d+)?([eE][-+]?\d+)?[kMGT]?\b)"), spaces(" +"), broken(R"(\n {8,})");
  std::string masked = std::regex_replace(text, broken, " ");
  masked = std::regex_replace(masked, std::regex(R"((agrees?; \S+ on ).*)"), "$1MACHINE");
  masked = std::regex_replace(masked, std::regex(R"(host:0 \(.*\))"), "host:0 (MACHINE)");
  masked = std::regex_replace(masked, number, "#");
  return std::regex_replace(masked, spaces, " ");
}

class Golden : public ProgramTest, public testing::WithParamInterface<std::tuple<Shown, int>> {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the stream waits for event " + std::to_string(i * i) + "\n";
    write("text.txt", text);
    const std::string here = folder.path();
    write("train.yaml", "run: {name: golden, dir: runs}\nmodel: {layers: 2, hidden: 32, heads: 2, vocab: 256}\n" +
                            replaced(text_data, "@", here) +
                            "train: {steps: 6, global_batch: 4, micro_batch: 2, eval_every: 3}\nlog: {every: 2}\n"
                            "launch: {ranks: 1, device: cpu}\n");
    write("verify.yaml", "model: {layers: 2, hidden: 32, heads: 2, vocab: 256}\n" + replaced(text_data, "@", here) +
                             "train: {steps: 2, global_batch: 4, micro_batch: 2}\nlaunch: {mode: threads, device: cpu}\n"
                             "verify: {layouts: [\"data=2\", \"pipeline=2 schedule=zb-v\", \"tensor=2 zero=1\"], steps: 2}\n");
    std::filesystem::copy_file(std::string(test_paths::source) + "/tests/topology/topologies/rails_2x4.json",
                               path("rails_2x4.json"));
  }

  // In the test's folder, so that no line is as long as a path of this machine; and without its calibration.
  Outcome print(const Shown& shown, int columns) {
    return run(folder.path(), "cd " + folder.path() + " && env XDG_CACHE_HOME=$PWD/cache COLUMNS=" + std::to_string(columns) +
                                  " " + test_paths::plait + " " + shown.arguments);
  }
};

TEST_P(Golden, IsWhatIsPrinted) {
  const auto& [shown, columns] = GetParam();
  const Outcome outcome = print(shown, columns);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  std::string text = outcome.output + outcome.errors;
  if (const std::size_t begin = text.find(shown.from); begin != std::string::npos) text = text.substr(begin);
  text = replaced(text, folder.path(), "DIR");
  if (shown.mask == Mask::numbers) text = without_numbers(text);
  const std::string file =
      std::string(test_paths::source) + "/tests/golden/" + shown.name + "." + std::to_string(columns) + ".txt";
  if (std::getenv("PLAIT_UPDATE_DOCS") != nullptr) std::ofstream(file) << text;
  std::ifstream kept(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), text)
      << "write it again with PLAIT_UPDATE_DOCS=1 test_app --gtest_filter='*Golden*'";
}

// Lines that a program reads (paths, lists of files) may be longer: they have no place to be broken.
TEST_P(Golden, FitsTheTerminal) {
  const auto& [shown, columns] = GetParam();
  if (shown.name == "train") return;  // a log's lines are as long as what they say
  for (const std::string& line : lines_in(print(shown, columns).output)) EXPECT_LE(display_width(line), columns) << line;
}

std::vector<Shown> all_shown() {
  std::vector<Shown> all;
  for (const char* command : {"",           "train",           "plan",         "verify",
                              "study",      "study fit",       "study report", "study compare",
                              "eval",       "sample",          "import",       "export",
                              "data",       "data pack",       "data encode",  "data batches",
                              "bench",      "bench step",      "bench p2p",    "bench collectives",
                              "bench ring", "bench calibrate", "topo",         "help"})
    all.push_back({replaced("help " + std::string(command), " ", "-"), "help " + std::string(command)});
  all.front().name = "help";
  all.back().name = "help-help";
  all.push_back({"verify", "verify verify.yaml", Mask::numbers});
  all.push_back({"train", "train train.yaml", Mask::numbers});
  all.push_back({"study-dry-run", "study --dry-run " + configs("studies/cpu.yaml"), Mask::numbers});
  all.push_back({"topo", "topo --from rails_2x4.json"});
  all.push_back({"plan", "plan --device h100 --gpus 4 " + configs("layouts/pipeline-4.yaml")});
  all.push_back(
      {"plan-grid", "plan --device h100 --gpus 4 --grid " + configs("layouts/pipeline-4.yaml"), Mask::none, "rank 0"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Commands, Golden, testing::Combine(testing::ValuesIn(all_shown()), testing::Values(80, 120)),
                         [](const auto& made) {
                           std::string name = std::get<0>(made.param).name + "_" + std::to_string(std::get<1>(made.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace plait::app
