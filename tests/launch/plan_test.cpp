#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "comm/tcp/socket.h"
#include "core/error.h"
#include "core/error_of.h"
#include "launch/agreement.h"
#include "launch/launch.h"
#include "launch/launch_environment.h"
#include "launch_fixtures.h"
#include "site/devices.h"
#include "site/outside_launcher.h"

namespace plait::launch::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Config on_cpu() {
  Config config;
  config.launch.device = "cpu";
  return config;
}

TEST(LaunchPlan, AutoOnTheCpuIsTwoRanksOrTheLayout) {
  Config config = on_cpu();
  LaunchPlan plan = plan_launch(config);
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.mode, LaunchMode::threads);
  EXPECT_THAT(plan.devices, testing::ElementsAre(Device{DeviceKind::host, 0}, Device{DeviceKind::host, 1}));
  EXPECT_EQ(plan.explanation, "2 ranks as threads on the CPU: launch.device is cpu");
  EXPECT_FALSE(plan.this_rank);

  config.parallel.size[Axis::tensor] = 3;
  EXPECT_EQ(plan_launch(config).ranks, 6);
  config.parallel.size[Axis::data] = 1;
  EXPECT_EQ(plan_launch(config).ranks, 3);
  config.parallel.size[Axis::pipeline] = 2;
  EXPECT_EQ(plan_launch(config).ranks, 6);
}

TEST(LaunchPlan, RanksMustFitTheLayout) {
  Config config = on_cpu();
  config.launch.ranks = 3;
  EXPECT_EQ(plan_launch(config).ranks, 3);
  config.parallel.size[Axis::tensor] = 2;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }),
              AllOf(HasSubstr("launch.ranks=3"), HasSubstr("multiple of parallel.tensor")));
  config.parallel.size[Axis::data] = 2;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }), AllOf(HasSubstr("launch.ranks=3"), HasSubstr("2 * 2 * 1")));
  config.launch.ranks = 4;
  EXPECT_EQ(plan_launch(config).ranks, 4);
}

TEST(LaunchPlan, AutoFallsBackToTheCpuAndSaysWhy) {
  std::string why;
  if (cuda_device_count(&why) > 0) GTEST_SKIP() << "this machine has GPUs";
  const LaunchPlan plan = plan_launch(Config{});
  EXPECT_FALSE(plan.devices[0].is_cuda());
  EXPECT_EQ(plan.explanation, "2 ranks as threads on the CPU: " + why);
  EXPECT_FALSE(why.empty());
  Config config;
  config.launch.device = "cuda";
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }), AllOf(HasSubstr("launch.device=cuda"), HasSubstr(why)));
}

TEST(GpuLaunchPlan, AutoTakesAllGpusAndNoMore) {
  const int devices = cuda_device_count();
  if (devices == 0) GTEST_SKIP() << "needs a GPU";
  Config config;
  const LaunchPlan plan = plan_launch(config);
  EXPECT_EQ(plan.ranks, devices);
  EXPECT_EQ(plan.devices.back(), (Device{DeviceKind::cuda, devices - 1}));
  config.launch.ranks = devices + 1;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }),
              AllOf(HasSubstr("launch.ranks"), HasSubstr("only " + std::to_string(devices))));
  config.launch.device = "cpu";
  EXPECT_EQ(plan_launch(config).ranks, devices + 1);
}

TEST(GpuLaunchPlan, RanksMayShareAGpu) {
  const int gpus = cuda_device_count();
  if (gpus == 0) GTEST_SKIP() << "needs a GPU";
  Config config;
  config.launch.ranks = 3 * gpus;
  config.launch.ranks_per_device = automatic;
  const LaunchPlan plan = plan_launch(config);
  for (int rank = 0; rank < plan.ranks; ++rank)
    EXPECT_EQ(plan.devices[static_cast<std::size_t>(rank)], (Device{DeviceKind::cuda, rank / 3}));
  EXPECT_TRUE(plan.devices.front().shared);
  EXPECT_THAT(plan.explanation, HasSubstr("3 to a GPU, so that speeds say nothing"));
  config.launch.ranks_per_device = 2;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }), HasSubstr("each takes 2 ranks (launch.ranks_per_device)"));
}

TEST(LaunchPlan, SharedDevicesAreForThreads) {
  Config config = on_cpu();
  EXPECT_FALSE(plan_launch(config).devices.front().shared);
  config.launch.ranks_per_device = 2;
  EXPECT_TRUE(plan_launch(config).devices.front().shared);
  config.launch.mode = LaunchMode::processes;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }),
              AllOf(HasSubstr("launch.ranks_per_device=2"), HasSubstr("threads of one process")));
}

TEST(LaunchPlan, Fp64RunsOnTheCpu) {
  Config config;
  config.precision.compute = "fp64";
  EXPECT_THAT(plan_launch(config).explanation, HasSubstr("fp64 runs on the CPU only"));
  config.launch.device = "cuda";
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }), HasSubstr("precision.compute=fp64"));
}

TEST(LaunchPlan, ABackendThatTheDeviceLacksIsRefused) {
  Config config = on_cpu();
  config.comm.backend = Backend::gloo;
  EXPECT_EQ(plan_launch(config).ranks, 2);
  config.comm.backend = Backend::nccl;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }),
              AllOf(HasSubstr("comm.backend=nccl"), HasSubstr("launch.device is cpu")));
  config.comm.backend = {};
  config.comm.mover = Mover::sm_write;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config); }), HasSubstr("comm.mover=sm_write: kernels need GPUs"));
}

TEST(LaunchPlan, PairsAreOfRanksOrGpusThatThereAre) {
  Config config = on_cpu();
  config.comm.p2p_pairs = {"0-1=host", "0-7=host"};
  const site::DeviceChoice cpus{DeviceKind::host, 0, ""}, gpus{DeviceKind::cuda, 4, ""};
  EXPECT_THAT(error_of<ConfigError>([&] { site::check_pairs(config, cpus, 2); }),
              AllOf(HasSubstr("comm.p2p_pairs=0-7=host: names a rank that does not exist; the job has 2 ranks"),
                    testing::Not(HasSubstr("0-1=host"))));
  site::check_pairs(config, cpus, 8);
  config.launch.device = "cuda";
  EXPECT_THAT(error_of<ConfigError>([&] { site::check_pairs(config, gpus, 2); }),
              HasSubstr("names a GPU that does not exist; this machine has 4 GPUs"));
  config.comm.p2p_pairs = {"0-3=host"};
  site::check_pairs(config, gpus, 2);  // of a GPU without a rank
}

// External mode: the environment of each outside launcher.
class LaunchEnvironment : public testing::Test {
 protected:
  LaunchEnvironment() {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_RESTART_COUNT",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "SLURM_RESTART_COUNT",
                             "SLURM_STEP_ID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_PTY_PORT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "PMIX_NAMESPACE",
                             "OMPI_MCA_ess_base_jobid",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "PLAIT_TOKEN"}) {
      variables_.emplace_back(name, std::nullopt);
    }
    config_ = on_cpu();
    config_.launch.mode = LaunchMode::external;
    config_.launch.rendezvous = directory_.path() + "/shared";
  }
  // The last one first, so that a variable that was set twice ends as it was before.
  ~LaunchEnvironment() override {
    while (!variables_.empty()) variables_.pop_back();
  }
  void set(const char* name, const std::string& value) { variables_.emplace_back(name, value); }
  void set_place(const char* rank, const char* size, const char* local, int value, int total) {
    set(rank, std::to_string(value));
    set(size, std::to_string(total));
    set(local, std::to_string(value % 2));
  }
  void torchrun(int rank, int size) { set_place("RANK", "WORLD_SIZE", "LOCAL_RANK", rank, size); }
  void slurm(int rank, int size) { set_place("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", rank, size); }
  void open_mpi(int rank, int size) {
    set_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", rank, size);
  }
  std::vector<std::string> job_folders() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(config_.launch.rendezvous))
      names.push_back(entry.path().filename());
    return names;
  }

  plait::test::TemporaryDirectory directory_;
  std::vector<EnvironmentVariable> variables_;
  Config config_;
};

TEST_F(LaunchEnvironment, Torchrun) {
  torchrun(3, 4);
  set("TORCHELASTIC_RUN_ID", "a/b 7");
  const LaunchPlan plan = plan_launch(config_);
  ASSERT_TRUE(plan.this_rank);
  EXPECT_EQ(plan.this_rank->rank, 3);
  EXPECT_EQ(plan.this_rank->size, 4);
  EXPECT_EQ(plan.this_rank->local_rank, 1);
  EXPECT_FALSE(plan.this_rank->is_main);
  EXPECT_EQ(plan.ranks, 4);
  EXPECT_THAT(plan.devices, testing::ElementsAre(Device{DeviceKind::host, 1}));
  EXPECT_EQ(plan.explanation, "4 ranks started from outside on the CPU: launch.device is cpu");
  EXPECT_THAT(job_folders(), testing::ElementsAre("plait-job-a_b_7"));
}

TEST_F(LaunchEnvironment, SlurmAndItsRestart) {
  slurm(0, 2);
  set("SLURM_JOB_ID", "991");
  EXPECT_TRUE(rank_from_environment(config_)->is_main);
  set("SLURM_RESTART_COUNT", "1");
  rank_from_environment(config_);
  EXPECT_THAT(job_folders(), testing::UnorderedElementsAre("plait-job-991", "plait-job-991-1"));
}

TEST_F(LaunchEnvironment, OpenMpiInsideASlurmAllocation) {
  slurm(0, 1);
  open_mpi(1, 2);
  set("PMIX_NAMESPACE", "42.1");
  EXPECT_EQ(rank_from_environment(config_)->rank, 1);
  EXPECT_THAT(job_folders(), testing::ElementsAre("plait-job-42_1"));
}

TEST_F(LaunchEnvironment, TorchrunInsideASlurmAllocation) {
  slurm(0, 1);
  torchrun(1, 2);
  EXPECT_EQ(rank_from_environment(config_)->rank, 1);
}

TEST_F(LaunchEnvironment, NobodyStartedUs) {
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config_); }),
              AllOf(HasSubstr("launch.mode=external"), HasSubstr("RANK (torchrun)"), HasSubstr("SLURM_PROCID (Slurm)")));
}

TEST_F(LaunchEnvironment, EveryProblemIsReported) {
  set("RANK", "two");
  set("LOCAL_RANK", "-1");
  config_.launch.rendezvous = "";
  EXPECT_THAT(error_of<ConfigError>([&] { rank_from_environment(config_); }),
              AllOf(HasSubstr("RANK=two"), HasSubstr("WORLD_SIZE: is missing"), HasSubstr("LOCAL_RANK=-1"),
                    HasSubstr("launch.rendezvous")));
  torchrun(4, 4);
  config_.launch.rendezvous = directory_.path();
  EXPECT_THAT(error_of<ConfigError>([&] { rank_from_environment(config_); }),
              AllOf(HasSubstr("RANK=4"), HasSubstr("less than")));
  for (const char* size : {"99999999999", "0", "-1"}) {
    set("WORLD_SIZE", size);
    EXPECT_THAT(error_of<ConfigError>([&] { rank_from_environment(config_); }),
                AllOf(HasSubstr(std::string("WORLD_SIZE=") + size + ": must be a number from 1 to 2147483647"),
                      Not(HasSubstr("RANK=4"))));
  }
  set("RANK", "99999999999");
  EXPECT_THAT(error_of<ConfigError>([&] { rank_from_environment(config_); }),
              HasSubstr("RANK=99999999999: must be a number from 0 to 2147483647"));
}

TEST_F(LaunchEnvironment, RanksOfTheConfigMustAgree) {
  torchrun(0, 4);
  config_.launch.ranks = 2;
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config_); }),
              AllOf(HasSubstr("launch.ranks=2"), HasSubstr("started 4 ranks")));
}

TEST_F(LaunchEnvironment, RunsThisRankOnceAndRefusesALeftOverDirectory) {
  torchrun(0, 1);
  int runs = 0;
  const auto run = [&] {
    return launch(plan_launch(config_, join_job(config_, parallel::Decision{})), [&](RankContext&) { ++runs; }, {});
  };
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(error_of<ConfigError>(run),
              AllOf(HasSubstr("earlier job"), HasSubstr(config_.launch.rendezvous), HasSubstr("fresh directory")));
  EXPECT_EQ(runs, 1);
  set("TORCHELASTIC_RESTART_COUNT", "1");
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(runs, 2);
}

class LaunchOverTcp : public LaunchEnvironment {
 protected:
  LaunchOverTcp() {
    torchrun(0, 1);
    config_.launch.rendezvous = "tcp";
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(comm::port_of(comm::listen_on("127.0.0.1", 0))));
    set("PLAIT_TOKEN", "a secret that nobody guesses");
  }
  std::string problem() {
    return error_of<ConfigError>([&] { return rank_from_environment(config_); });
  }
};

TEST_F(LaunchOverTcp, ServesAndRunsWithoutADirectory) {
  int runs = 0;
  const auto body = [&](RankContext& context) {
    ++runs;
    context.rendezvous->set("address", "10.0.0.1");
  };
  const auto run = [&] { return launch(plan_launch(config_, join_job(config_, parallel::Decision{})), body, {}); };
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(run(), 0) << "nothing is left over";
  EXPECT_EQ(runs, 2);
}

TEST_F(LaunchOverTcp, TheTokenComesFromAFileOrTheEnvironment) {
  set("PLAIT_TOKEN", "");
  EXPECT_THAT(problem(), AllOf(HasSubstr("PLAIT_TOKEN"), HasSubstr("launch.token_file"), HasSubstr("openssl rand -hex 32")));
  set("PLAIT_TOKEN", "too short");
  EXPECT_THAT(problem(), AllOf(HasSubstr("PLAIT_TOKEN"), HasSubstr("9 characters"), testing::Not(HasSubstr("too short"))));

  const std::string file = directory_.path() + "/token";
  config_.launch.token_file = file;
  EXPECT_THAT(problem(), AllOf(HasSubstr("launch.token_file"), HasSubstr("cannot be read")));
  std::ofstream(file) << "a secret that nobody guesses\n";
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_THAT(problem(), AllOf(HasSubstr("launch.token_file"), HasSubstr("chmod 600")));
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  const auto server = rank_from_environment(config_)->rendezvous;
  set("PLAIT_TOKEN", "a secret that nobody guesses");  // the same, without the end of the line
  config_.launch.token_file = "";
  server->set("key", "value");
  EXPECT_EQ(open_rendezvous(config_, 1, 1, "plait-job")->find("key"), "value");
}

TEST_F(LaunchOverTcp, ThePlaceComesFromTheLauncherUnlessGiven) {
  set("MASTER_ADDR", "");
  set("MASTER_PORT", "many");
  EXPECT_THAT(problem(), AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("MASTER_PORT"), HasSubstr("tcp://HOST:PORT")));
  config_.launch.rendezvous = "tcp://127.0.0.1:" + std::to_string(comm::port_of(comm::listen_on("127.0.0.1", 0)));
  EXPECT_NE(rank_from_environment(config_)->rendezvous, nullptr);
}

TEST_F(LaunchOverTcp, TorchrunsOwnPortIsLeftToIt) {
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_THAT(problem(), AllOf(HasSubstr("torchrun itself listens"), HasSubstr("tcp://:")));
  config_.launch.rendezvous = "tcp://:" + std::to_string(comm::port_of(comm::listen_on("127.0.0.1", 0)));
  EXPECT_NE(rank_from_environment(config_)->rendezvous, nullptr);
}

TEST_F(LaunchOverTcp, APortThatIsTakenOrAnAddressThatIsNotHereIsNamed) {
  const FileDescriptor taken = comm::listen_on("127.0.0.1", 0);
  const std::string port = std::to_string(comm::port_of(taken));
  set("MASTER_PORT", port);
  const auto refusal = [&] { return error_of<CommError>([&] { return rank_from_environment(config_); }); };
  EXPECT_THAT(refusal(), AllOf(HasSubstr("launch.rendezvous=tcp"), HasSubstr("127.0.0.1:" + port), HasSubstr("in use"),
                               HasSubstr("name another port, the same for all ranks: MASTER_PORT, or launch.rendezvous: "
                                         "tcp://HOST:PORT")));
  set("MASTER_ADDR", "192.0.2.1");  // reserved for documentation (RFC 5737)
  EXPECT_THAT(refusal(), AllOf(HasSubstr("192.0.2.1"), HasSubstr("no address of this host")));
}

// launch.mode auto: who starts plait by hand gets threads, wherever the shell is.
class LaunchAuto : public LaunchEnvironment {
 protected:
  LaunchAuto() { config_.launch.mode = automatic; }
  void step(const char* id, int tasks) {
    set("SLURM_STEP_ID", id);
    set("SLURM_STEP_NUM_TASKS", std::to_string(tasks));
  }
};

TEST_F(LaunchAuto, IsThreadsInAShell) {
  config_.launch.rendezvous = "";
  EXPECT_EQ(plan_launch(config_).mode, LaunchMode::threads);
  EXPECT_EQ(plan_launch(config_).warning, "");
  set("RANK", "1");  // whatever that is
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  set("WORLD_SIZE", "2");
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
}

// What operators of Kubernetes set has no rank within the host: a pod is one.
TEST_F(LaunchAuto, IsARankInAPodOfAJob) {
  set("RANK", "1");
  set("WORLD_SIZE", "2");
  set("MASTER_ADDR", "job-master-0");
  const std::string rendezvous = std::exchange(config_.launch.rendezvous, "");
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  config_.launch.rendezvous = rendezvous;
  set("MASTER_PORT", "23456");
  EXPECT_EQ(plan_launch(config_).mode, LaunchMode::external);
  EXPECT_EQ(plan_launch(config_).this_rank->rank, 1);
  EXPECT_EQ(plan_launch(config_).this_rank->local_rank, 0);
  config_.launch.mode = LaunchMode::external;
  EXPECT_EQ(plan_launch(config_).this_rank->size, 2);
}

// Ranks that are to meet do not each train alone.
TEST_F(LaunchAuto, WithARendezvousAPlaceIsSaidWhole) {
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads) << "nobody has said anything";
  set("WORLD_SIZE", "1");
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads) << "there is nobody to meet";
  set("WORLD_SIZE", "2");
  const auto problem = [&] { return error_of<ConfigError>([&] { plan_launch(config_); }); };
  EXPECT_THAT(problem(), HasSubstr("environment variable RANK: is missing"));
  set("RANK", "x");
  EXPECT_THAT(problem(), HasSubstr("environment variable RANK=x: must be a number"));
  set("RANK", "1");
  EXPECT_THAT(problem(), HasSubstr("environment variable LOCAL_RANK: is missing"));
  set("MASTER_ADDR", "job-master-0");
  EXPECT_THAT(problem(), HasSubstr("environment variable LOCAL_RANK: is missing"));
  set("LOCAL_RANK", "0");
  set("RANK", "2");
  EXPECT_THAT(problem(), HasSubstr("environment variable RANK=2: must be less than the number of ranks, 2"));
  set("RANK", "1");
  EXPECT_EQ(plan_launch(config_).this_rank->size, 2);
  config_.launch.rendezvous = "";
  set("RANK", "2");
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
}

TEST_F(LaunchAuto, IsARankUnderEachLauncher) {
  torchrun(1, 2);
  EXPECT_EQ(plan_launch(config_).mode, LaunchMode::external);
  EXPECT_EQ(plan_launch(config_).this_rank->rank, 1);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) variables_.emplace_back(name, std::nullopt);
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  slurm(0, 3);
  step("7", 3);
  EXPECT_EQ(plan_launch(config_).this_rank->size, 3);
  open_mpi(2, 4);
  EXPECT_EQ(plan_launch(config_).this_rank->rank, 2);
}

TEST_F(LaunchAuto, ALauncherOfOneProcessIsNone) {
  config_.launch.rendezvous = "";
  torchrun(0, 1);
  open_mpi(0, 1);
  slurm(0, 1);
  step("0", 1);
  EXPECT_EQ(plan_launch(config_).mode, LaunchMode::threads);
}

TEST_F(LaunchAuto, SlurmCountsOnlyWithAStep) {
  config_.launch.rendezvous = "";
  set("SLURM_JOB_ID", "991");
  set("SLURM_NTASKS", "4");  // salloc -n 4
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  slurm(0, 4);  // sbatch -n 4, whose script is task 0 of nothing
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  step("4294967290", 1);  // salloc with LaunchParameters=use_interactive_step
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  step("4294967290", 4);
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  step("0", 1);  // srun --pty bash, in an allocation for four
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  step("1", 4);
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::external);
}

// srun -n 4 --pty bash: the shell is task 0 of 4. What it starts has the terminal; what srun starts from there has not.
TEST_F(LaunchAuto, ATerminalOfSrunIsAShell) {
  slurm(0, 4);
  step("0", 4);
  set("SLURM_PTY_PORT", "45111");
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY), kept = ::dup(STDIN_FILENO), null = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(terminal, 0);
  ::dup2(terminal, STDIN_FILENO);
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::threads);
  ::dup2(null, STDIN_FILENO);
  EXPECT_EQ(site::launch_mode(config_), LaunchMode::external);
  ::dup2(kept, STDIN_FILENO);
  for (const int descriptor : {terminal, kept, null}) ::close(descriptor);
}

TEST_F(LaunchAuto, UnderALauncherItNeedsARendezvous) {
  open_mpi(1, 2);
  config_.launch.rendezvous = "";
  EXPECT_THAT(error_of<ConfigError>([&] { plan_launch(config_); }),
              AllOf(HasSubstr("launch.rendezvous"), HasSubstr("Open MPI has started this process as one of 2 ranks")));
}

TEST_F(LaunchAuto, WholeJobsUnderALauncherAreToldOnce) {
  config_.launch.rendezvous = "";
  for (const LaunchMode mode : {LaunchMode::threads, LaunchMode::processes}) {
    config_.launch.mode = mode;
    open_mpi(0, 2);
    EXPECT_THAT(plan_launch(config_).warning, AllOf(HasSubstr("Open MPI has started 2 processes"), HasSubstr(to_string(mode))));
    open_mpi(1, 2);
    EXPECT_EQ(plan_launch(config_).warning, "");
  }
}

TEST_F(LaunchEnvironment, OtherModesIgnoreOutsideLaunchers) {
  torchrun(1, 2);
  config_.launch.mode = LaunchMode::threads;
  EXPECT_FALSE(rank_from_environment(config_));
  config_.launch.mode = LaunchMode::processes;
  EXPECT_FALSE(rank_from_environment(config_));
}

}  // namespace
}  // namespace plait::launch::test
