// What the program says of arguments, as a new user gives them.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program_test.h"

namespace plait::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Usage : public ProgramTest {};

TEST_F(Usage, AloneShowsHelpAndIsAnError) {
  const Outcome alone = plait("");
  EXPECT_EQ(alone.status, 2);
  EXPECT_EQ(alone.output, "");
  EXPECT_THAT(alone.errors, AllOf(HasSubstr("Usage: plait [OPTIONS] SUBCOMMAND"), HasSubstr("\n  train ")));
  const Outcome bench = plait("bench");
  EXPECT_EQ(bench.status, 2);
  EXPECT_THAT(bench.errors, AllOf(HasSubstr("Usage: plait bench [OPTIONS] SUBCOMMAND"), HasSubstr("\n  p2p ")));
}

TEST_F(Usage, HelpIsACommandToo) {
  const Outcome all = plait("help");
  EXPECT_EQ(all.status, 0);
  EXPECT_EQ(all.output, plait("--help").output);
  EXPECT_EQ(all.output, plait("").errors);
  const Outcome nested = plait("help bench p2p");
  EXPECT_EQ(nested.status, 0);
  EXPECT_EQ(nested.output, plait("bench p2p --help").output);
  EXPECT_THAT(nested.output, HasSubstr("Usage: plait bench p2p [OPTIONS]"));
  EXPECT_THAT(refused("help bench p2q"), HasSubstr("there is no command 'p2q' of plait bench; did you mean 'p2p'?"));
}

TEST_F(Usage, TellsItsVersion) {
  const Outcome outcome = plait("--version");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, StartsWith("plait "));
}

// By all ways to write: whole documents, formatted text, what stays in a buffer to the end, and line by line.
TEST_F(Usage, OutputThatCannotBeWrittenIsAnError) {
  const std::string plan = "plan " + std::string(test_paths::source) + "/configs/quickstart.yaml";
  for (const std::string& arguments :
       {plan + " --json", plan, std::string("topo --json"), std::string("help"), std::string("help bench p2p"),
        std::string("--version"), std::string("train --help"), std::string("data encode </dev/null")}) {
    const Outcome full = plait(arguments + " >/dev/full");
    EXPECT_EQ(full.status, 3) << arguments;
    EXPECT_EQ(full.errors, "plait: cannot write to standard output: No space left on device\n") << arguments;
  }
  const Outcome limited =
      run(folder.path(), "ulimit -f 1; " + std::string(test_paths::plait) + " " + plan + " --json >" + path("f"));
  EXPECT_EQ(limited.status, 3);
  EXPECT_EQ(limited.errors, "plait: cannot write to standard output: File too large\n");
  write("text.txt", std::string(20'000, 'a'));
  write("job.yaml", "model: {layers: 1, hidden: 16, heads: 2}\ndata: {train: [" + path("text.txt") +
                        "], sequence_length: 16}\ntrain: {steps: 2, global_batch: 2, micro_batch: 2}\nlaunch: {device: cpu}\n");
  const Outcome verified = plait("verify @/job.yaml --layout data=1 >/dev/full");
  EXPECT_EQ(verified.status, 3);
  EXPECT_THAT(verified.errors, HasSubstr("plait: cannot write to standard output: a part of it is lost\n"));
}

// What stands for a stream that is not there must not be a file of ours.
TEST_F(Usage, ClosedStandardStreamsAreNotTakenForFiles) {
  write("text.txt", std::string(20'000, 'a'));
  write("job.yaml", "run: {name: r, dir: " + folder.path() + "}\nmodel: {layers: 1, hidden: 16, heads: 2}\ndata: {train: [" +
                        path("text.txt") +
                        "], sequence_length: 16}\ntrain: {steps: 2, global_batch: 2, micro_batch: 1}\nparallel: {data: 2}\n"
                        "launch: {device: cpu, mode: processes}\n");
  const std::string train = std::string(test_paths::plait) + " train " + path("job.yaml");
  EXPECT_EQ(run(folder.path(), "sh -c '" + train + " <&- 2>&-'").status, 0);
  std::ifstream plan(path("r/plan.json")), metrics(path("r/metrics.jsonl"));
  EXPECT_TRUE(nlohmann::json::accept(plan));
  for (std::string line; std::getline(metrics, line);) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_EQ(run(folder.path(), "sh -c '" + std::string(test_paths::plait) + " --version >&-'").status, 3);
}

TEST_F(Usage, AClosedPipeIsNoError) {
  const std::string plan = " plan " + std::string(test_paths::source) + "/configs/quickstart.yaml --json";
  const Outcome outcome = run(folder.path(), "(" + std::string(test_paths::plait) + plan + " 2>" + path("e") + ") | head -c 1");
  EXPECT_EQ(outcome.output, "{");
  EXPECT_EQ(std::filesystem::file_size(path("e")), 0);
}

TEST_F(Usage, ProposesCommandsAndOptions) {
  EXPECT_THAT(refused("trian x.yaml --set train.steps=3"), HasSubstr("no command 'trian' of plait; did you mean 'train'?"));
  EXPECT_THAT(refused("bench colectives"), HasSubstr("no command 'colectives' of plait bench; did you mean 'collectives'?"));
  EXPECT_THAT(refused("zzzzzzzz"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refused("train x.yaml --resum y"), HasSubstr("plait train has no option --resum; did you mean '--resume'?"));
  EXPECT_THAT(refused("plan x.yaml --topologie=y"), HasSubstr("no option --topologie; did you mean '--topology'?"));
  // What is missing beside it matters less.
  EXPECT_THAT(refused("data pack --outt x"), HasSubstr("plait data pack has no option --outt; did you mean '--out'?"));
  EXPECT_THAT(refused("train a.yaml b.yaml"), HasSubstr("plait train takes no further argument 'b.yaml'"));
}

TEST_F(Usage, ProposesKeysOfTheConfiguration) {
  EXPECT_THAT(refused("train x.yaml --steps 10"), HasSubstr("did you mean '--set train.steps=...'?"));
  EXPECT_THAT(refused("train x.yaml --learning-rate 1e-3"), HasSubstr("did you mean '--set train.optimizer.lr=...'?"));
  EXPECT_THAT(refused("verify x.yaml --micro-batch-size=2"), HasSubstr("did you mean '--set train.micro_batch=...'?"));
  EXPECT_THAT(refused("sample x --learning-rate 1"), Not(HasSubstr("--set")));  // it takes none
  const std::string quickstart = std::string(test_paths::source) + "/configs/quickstart.yaml";
  EXPECT_THAT(refused("plan " + quickstart + " --set learning_rate=1"),
              HasSubstr("learning_rate=1: unknown key; did you mean 'train.optimizer.lr'?"));
  EXPECT_THAT(refused("plan " + quickstart + " --set train.gradient_accumulation_steps=4"),
              HasSubstr("unknown key: it follows, as train.global_batch / (train.micro_batch x parallel.data); did you mean "
                        "'train.global_batch'?"));
}

// Of every option that takes one, as the help lists them.
TEST_F(Usage, WholeNumbersAreHeldAgainstTheirRange) {
  int options = 0;
  for (const char* command : {"train",
                              "plan",
                              "verify",
                              "study",
                              "study fit",
                              "study report",
                              "study compare",
                              "study round",
                              "eval",
                              "sample",
                              "import",
                              "export",
                              "data pack",
                              "data encode",
                              "data batches",
                              "bench step",
                              "bench ring",
                              "bench p2p",
                              "bench collectives",
                              "bench calibrate",
                              "topo"}) {
    for (const std::string& line : lines_in(plait("help " + std::string(command)).output)) {
      std::istringstream words(line);
      std::string name, type;
      words >> name >> type;
      if (!name.starts_with("--") || (type != "INT" && type != "UINT" && type != "HOSTS")) continue;
      ++options;
      for (const char* value : {"99999999999999999999", "1.5"}) {
        const std::string said = refused(command + (" " + name) + "=" + value);
        EXPECT_THAT(said, AllOf(StartsWith("plait: " + name + ": must be a whole number from "), HasSubstr(" to ")))
            << command << " " << name << " " << value;
      }
    }
  }
  EXPECT_GE(options, 30);
  for (const char* value : {"18446744073709551616", "-9999999999999999999", "1e3", "010", "0x10", "x"}) {
    EXPECT_THAT(refused(std::string("topo --replicate=") + value),
                HasSubstr("--replicate: must be a whole number from 1 to 2147483647, not " + std::string(value)));
  }
  EXPECT_THAT(refused("sample x --prompt a --seed -1"),
              HasSubstr("--seed: must be a whole number from 0 to 18446744073709551615, not -1"));
  EXPECT_THAT(refused("plan x.yaml --gpus 2147483648"),
              HasSubstr("--gpus: must be a whole number from 1 to 65536, not 2147483648"));
  EXPECT_THAT(refused("sample x --prompt a --seed 18446744073709551615"), Not(HasSubstr("--seed")));
  EXPECT_THAT(refused("topo --replicate 99999999999"), HasSubstr("--replicate: must be a whole number from 1 to "));
}

TEST_F(Usage, NumbersAreHeldAgainstTheirRange) {
  const std::pair<const char*, const char*> options[] = {{"topo --replicate 2 --network-gb-per-s", "1e-06 to 1000000"},
                                                         {"sample x --prompt a --temperature", "0 to 1000000"},
                                                         {"bench ring --timeout", "0.01 to 1000000"}};
  for (const auto& [option, range] : options) {
    const std::string name = std::string(option).substr(std::string(option).find_last_of(' ') + 1);
    for (const char* value : {"1e300", "1e999", "1000001", "inf", "nan", "-1", "-1e-9", "x"})
      EXPECT_THAT(refused(std::string(option) + "=" + value),
                  HasSubstr(name + ": must be a number from " + range + ", not " + value));
  }
}

TEST_F(Usage, EveryErrorSaysWhoSpeaks) {
  for (const char* arguments : {"trian", "train --restart", "train a b", "plan --gpus 0 x", "data pack", "train",
                                "topo --from /nowhere", "help nothing", "bench step"})
    EXPECT_THAT(refused(arguments), StartsWith("plait: ")) << arguments;
}

TEST_F(Usage, HelpFitsTheTerminal) {
  for (const char* command : {"", "train", "plan", "verify", "study", "study compare", "eval", "sample", "import", "data pack",
                              "bench p2p", "bench calibrate", "topo"}) {
    for (const int columns : {60, 80, 120}) {
      const Outcome help =
          run(folder.path(), "COLUMNS=" + std::to_string(columns) + " " + test_paths::plait + " help " + command);
      for (const std::string& line : lines_in(help.output)) EXPECT_LE(line.size(), columns) << line;
    }
  }
}

}  // namespace
}  // namespace plait::app
