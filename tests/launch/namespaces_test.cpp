// Jobs whose ranks are in two network namespaces of this machine, joined by a cable: what two hosts are to each other, and what
// two pods of one node are. No directory is shared for the rendezvous. Skipped where namespaces cannot be made (that needs
// root).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/temporary_directory.h"
#include "watchdog_job.h"

namespace plait::launch::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

class TwoNetworks {
 public:
  TwoNetworks() {
    ready_ = true;
    for (const int i : {0, 1}) ready_ = ready_ && run("ip netns add " + name(i));
    ready_ = ready_ && run("ip link add cable netns " + name(0) + " type veth peer name cable netns " + name(1));
    for (const int i : {0, 1}) {
      ready_ = ready_ && run("ip -n " + name(i) + " addr add " + address(i) + "/24 dev cable") &&
               run("ip -n " + name(i) + " link set cable up") && run("ip -n " + name(i) + " link set lo up");
    }
  }
  TwoNetworks(const TwoNetworks&) = delete;
  TwoNetworks& operator=(const TwoNetworks&) = delete;
  ~TwoNetworks() {
    for (const int i : {0, 1}) run("ip netns del " + name(i));
  }
  bool ready() const { return ready_; }
  void cut() const { run("ip -n " + name(0) + " link set cable down"); }
  // Whatever rank 0 sends takes that much longer, as a queue of a link that is overloaded: `rate` as tc writes it.
  bool slow(const std::string& rate) const {
    return run("ip netns exec " + name(0) + " tc qdisc add dev cable root tbf rate " + rate + " burst 16kb latency 100s");
  }
  static std::string address(int i) { return "10.77.0." + std::to_string(i + 1); }
  static std::string name(int i) { return "plait-test-" + std::to_string(::getpid()) + "-" + std::to_string(i); }

 private:
  bool ready_ = false;
};

class Namespaces : public testing::Test {
 protected:
  void SetUp() override {
    if (!networks_.ready()) GTEST_SKIP() << "network namespaces cannot be made here (ip netns add, as root)";
    std::ofstream text(folder_.path() + "/text.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i << ": the quick brown fox jumps over the lazy dog\n";
  }
  void TearDown() override {
    std::erase(processes_, 0);  // they have ended
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
    for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
  }

  std::string config(const std::string& name, const std::string& more) const {
    const std::string path = folder_.path() + "/" + name + ".yaml";
    std::ofstream(path) << "run: {name: " << name << ", dir: " << folder_.path() << "/runs}\n"
                        << "model: {layers: 2, hidden: 16, heads: 2, ffn: 32}\n"
                        << "data: {train: [" << folder_.path() << "/text.txt], tokenizer: bytes, sequence_length: 8}\n"
                        << "log: {every: 1, tensorboard: false}\n"
                        << more;
    return path;
  }

  // Rank `rank` of `size`, in one of the namespaces. `ip netns exec` becomes what it runs.
  void start(const std::string& config, int rank, int size, int network, bool own_processes = false) {
    const char* const pod = " unshare --pid --ipc --uts --fork --kill-child --mount-proc ";
    const std::string log = folder_.path() + "/log" + std::to_string(processes_.size());
    const std::string command = "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(size) +
                                " LOCAL_RANK=0 MASTER_ADDR=" + TwoNetworks::address(0) +
                                " MASTER_PORT=29500 PLAIT_TOKEN=a-secret-that-nobody-guesses exec ip netns exec " +
                                TwoNetworks::name(network) + (own_processes ? pod : " ") + test_paths::plait + " train " +
                                config + " >" + log + " 2>&1";
    const char* arguments[] = {"sh", "-c", command.c_str(), nullptr};
    pid_t process = 0;
    ASSERT_EQ(::posix_spawn(&process, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(arguments), environ), 0);
    processes_.push_back(process);
  }
  // Two ranks of a run without end, one in each network, that have taken some steps.
  void start_endless(const std::string& name, int timeout_s) {
    const std::string path = config(
        name,
        "train: {steps: 1000000, global_batch: 4, micro_batch: 1}\nparallel: {data: 2}\ncomm: {interface: cable, timeout_s: " +
            std::to_string(timeout_s) + "}\nlaunch: {device: cpu, mode: external, rendezvous: tcp}\n");
    for (int rank = 0; rank < 2; ++rank) start(path, rank, 2, rank);
    ASSERT_TRUE(within(std::chrono::seconds(60), [&] { return losses(name).size() > 3; })) << log(0) << log(1);
  }
  // The exit status; -1: a signal, or it hung.
  int wait(std::size_t index, std::chrono::seconds limit = std::chrono::seconds(60)) {
    int status = 0;
    const bool over = within(limit, [&] { return ::waitpid(processes_[index], &status, WNOHANG) == processes_[index]; });
    if (!over) return -1;
    processes_[index] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string log(std::size_t index) const { return contents(folder_.path() + "/log" + std::to_string(index)); }

  std::vector<double> losses(const std::string& name) const {
    std::istringstream lines(contents(folder_.path() + "/runs/" + name + "/metrics.jsonl"));
    std::vector<double> values;
    // What is being written ends without a newline.
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) values.push_back(json["loss"]);
    }
    return values;
  }

  const TwoNetworks networks_;
  const plait::test::TemporaryDirectory folder_;
  std::vector<pid_t> processes_;
};

struct Layout {
  const char* name;
  const char* text;
  bool neighbours_apart;       // ranks that follow each other are in different networks; the axes that cross the cable follow
  bool own_processes = false;  // each rank has its own PID, IPC and UTS namespace too, as in a pod
};

class NamespaceLayouts : public Namespaces, public testing::WithParamInterface<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, NamespaceLayouts,
                         testing::Values(Layout{"data", "{data: 4}", true}, Layout{"zero", "{data: 4, zero: 2}", true},
                                         Layout{"tensor", "{data: 2, tensor: 2}", true},
                                         Layout{"pipeline", "{data: 2, pipeline: 2}", false},
                                         Layout{"pods", "{data: 2, pipeline: 2}", false, true}),
                         [](const auto& layout) { return std::string(layout.param.name); });

TEST_P(NamespaceLayouts, TrainAsInOneProcess) {
  const std::string job =
      "train: {steps: 5, global_batch: 8, micro_batch: 1}\nparallel: " + std::string(GetParam().text) + "\n";
  const std::string spread =
      config("spread", job + "comm: {interface: 10.77.0.0/24}\n" + "launch: {device: cpu, mode: external, rendezvous: tcp}\n");
  for (int rank = 0; rank < 4; ++rank) {
    start(spread, rank, 4, GetParam().neighbours_apart ? rank % 2 : rank / 2, GetParam().own_processes);
  }
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(wait(rank), 0) << log(rank);
  const std::string whole = config("whole", job + "launch: {device: cpu, mode: threads}\n");
  ASSERT_TRUE(run(std::string(test_paths::plait) + " train " + whole));
  EXPECT_EQ(losses("spread").size(), 5u);
  EXPECT_EQ(losses("spread"), losses("whole"));
}

TEST_F(Namespaces, PipelineByTheLibraryWhereItIsAskedFor) {
  const std::string path =
      config("nccl",
             "train: {steps: 3, global_batch: 4, micro_batch: 1}\nparallel: {data: 1, pipeline: 2}\n"
             "comm: {interface: cable, p2p: nccl}\nlaunch: {device: cpu, mode: external, rendezvous: tcp}\n");
  for (int rank = 0; rank < 2; ++rank) start(path, rank, 2, rank);
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(wait(rank), 0) << log(rank);
  EXPECT_EQ(losses("nccl").size(), 3u);
}

TEST_F(Namespaces, LoopbackIsAnErrorThatSaysWhatToSet) {
  const std::string path = config("loopback",
                                  "train: {steps: 3, global_batch: 4, micro_batch: 1}\nparallel: {data: 2}\n"
                                  "launch: {device: cpu, mode: external, rendezvous: tcp}\n");
  for (int rank = 0; rank < 2; ++rank) start(path, rank, 2, rank);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(wait(rank), 2);
    EXPECT_THAT(log(rank),
                AllOf(HasSubstr("comm.interface=127.0.0.1"), HasSubstr("loopback"),
                      HasSubstr("rank " + std::to_string(1 - rank) + " is in another network namespace"),
                      HasSubstr("comm.interface=eth0"), HasSubstr("cable " + TwoNetworks::address(static_cast<int>(rank)))));
  }
}

// What the step lines show of a link that got slow, and what ends a run that it holds up for longer than comm.timeout_s.
TEST_F(Namespaces, ADelayedLinkIsNamed) {
  ASSERT_NO_FATAL_FAILURE(start_endless("delayed", 5));
  ASSERT_TRUE(networks_.slow("500kbit"));
  const auto is_shown = [&] {
    const std::string said = log(0);
    const std::size_t exposed = said.rfind("exposed 9");  // 9x.x % of the step
    return exposed != std::string::npos && said.find("gradient buckets", exposed) != std::string::npos;
  };
  EXPECT_TRUE(within(std::chrono::seconds(60), is_shown)) << log(0);
  ASSERT_TRUE(run("ip netns exec " + TwoNetworks::name(0) + " tc qdisc del dev cable root") && networks_.slow("1kbit"));
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(wait(rank), 3) << log(rank);
  // Which of the two gives the other up first is a matter of their clocks. That one knows what it waits for; the other one may
  // know no more than that it was given up.
  const auto explains = [&](std::size_t rank) {
    const testing::Matcher<std::string> all =
        AllOf(HasSubstr("rank " + std::to_string(1 - rank) + " does not answer"), HasSubstr("waits in `sum of "),
              AnyOf(HasSubstr("the network between it and this rank is cut or too slow"), HasSubstr("has ended")));
    return all.Matches(log(rank));
  };
  EXPECT_TRUE(explains(0) || explains(1)) << log(0) << log(1);
  EXPECT_THAT(log(0), HasSubstr("rank 1"));
  EXPECT_THAT(log(1), HasSubstr("rank 0"));
}

TEST_F(Namespaces, ACutCableIsNamed) {
  ASSERT_NO_FATAL_FAILURE(start_endless("cut", 6));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // each watchdog has seen where the other rank lives
  const auto start = std::chrono::steady_clock::now();
  networks_.cut();
  for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(wait(rank), 3) << log(rank);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25));
  EXPECT_THAT(log(0), HasSubstr("rank 1 does not answer"));
  // It cannot ask rank 0, which keeps the rendezvous, and says what it knows by itself.
  EXPECT_THAT(log(1), AllOf(HasSubstr("rank 0"), AnyOf(HasSubstr("cut off"), HasSubstr("no answer")),
                            HasSubstr("rank 0 does not answer: its process "), HasSubstr("cut or too slow"),
                            HasSubstr("waits in `sum of "), HasSubstr("for rank 0")));
}

}  // namespace
}  // namespace plait::launch::test
