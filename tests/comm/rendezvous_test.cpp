#include "comm/rendezvous.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "core/error_of.h"
#include "core/temporary_directory.h"
#include "rank_threads.h"
#include "rendezvous_kinds.h"

namespace plait::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

class RendezvousKind : public EveryRendezvous {};
INSTANTIATE_TEST_SUITE_P(Kinds, RendezvousKind, rendezvous_kinds(), rendezvous_kind);

TEST_P(RendezvousKind, CarriesAnyBytesUnderAnyKey) {
  const auto a = store();
  const auto b = store();
  const std::string value("\0\n\xff binary", 10);
  const std::vector<std::string> keys = {"plain", "group/gloo/0", "../outside", "with space", "%41", "A", "\xc3\xa4"};
  for (const std::string& key : keys) a->set(key, value + key);
  for (const std::string& key : keys) EXPECT_EQ(b->get(key, milliseconds(0)), value + key);
  a->set("empty", "");
  EXPECT_EQ(b->get("empty", milliseconds(0)), "");
}

TEST_P(RendezvousKind, GetWaitsUntilSomebodySets) {
  const auto a = store();
  const auto b = store();
  std::thread setter([&] {
    std::this_thread::sleep_for(milliseconds(50));
    a->set("late", "value");
  });
  EXPECT_EQ(b->get("late", seconds(30)), "value");
  setter.join();
}

TEST_P(RendezvousKind, GetNamesKeyAndTimeWhenNobodySets) {
  EXPECT_THAT(error_of<CommError>([&] { store()->get("missing/key", milliseconds(30)); }),
              AllOf(HasSubstr("'missing/key'"), HasSubstr("within 30 ms")));
}

TEST_P(RendezvousKind, AKeyIsSetOnceEvenWhenAllTryAtOnce) {
  std::atomic<int> winners = 0;
  const auto outcome = outcome_of_ranks(8, [&](int rank) {
    const auto mine = store();
    for (int key = 0; key < 20; ++key) {
      const std::string name = "key" + std::to_string(key);
      try {
        mine->set(name, std::string(10'000, static_cast<char>('a' + rank)));
        ++winners;
      } catch (const CommError&) {
      }
      const std::string value = mine->get(name, seconds(30));
      EXPECT_EQ(value, std::string(10'000, value[0])) << "a torn value";
    }
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
  EXPECT_EQ(winners, 20);
}

TEST_P(RendezvousKind, AbortReleasesWaitersAndTheFirstReasonStays) {
  const auto a = store();
  const auto b = store();
  a->set("there", "value");
  std::thread aborter([&] {
    std::this_thread::sleep_for(milliseconds(50));
    a->abort("rank 3: out of memory");
    a->abort("a later reason");
  });
  EXPECT_THAT(error_of<CommError>([&] { b->get("never", seconds(30)); }),
              AllOf(HasSubstr("'never'"), HasSubstr("rank 3: out of memory")));
  aborter.join();
  EXPECT_THAT(error_of<CommError>([&] { b->get("there", seconds(30)); }), HasSubstr("rank 3: out of memory"));
}

TEST(MemoryRendezvous, WhatADeadWriterLeftIsNoKey) {
  const RendezvousMemory memory;
  const auto a = make_memory_rendezvous(memory.descriptor());
  a->set("first", "value");
  struct stat status{};
  ASSERT_EQ(fstat(memory.descriptor(), &status), 0);
  // It had written keys and values, but no word before them yet, which comes last.
  const std::string torn(1000, '\xff');
  const auto end = (status.st_size + 7) / 8 * 8;
  ASSERT_EQ(pwrite(memory.descriptor(), torn.data(), torn.size(), end + 8), 1000);
  const auto b = make_memory_rendezvous(memory.descriptor());
  EXPECT_EQ(a->find("second"), std::nullopt);
  a->set("second", "");
  EXPECT_EQ(b->find("third"), std::nullopt);
  b->set("third", "value");
  for (const auto& store : {a, b}) {
    EXPECT_EQ(store->find("first"), "value");
    EXPECT_EQ(store->find("second"), "");
    EXPECT_EQ(store->find("third"), "value");
  }
}

TEST(MemoryRendezvous, RefusesWhatNoRankWrites) {
  const RendezvousMemory memory;
  const std::string torn(1000, '\xff');
  ASSERT_EQ(pwrite(memory.descriptor(), torn.data(), torn.size(), 0), 1000);
  const auto store = make_memory_rendezvous(memory.descriptor());
  EXPECT_THAT(error_of<CommError>([&] { store->find("key"); }), HasSubstr("no rank writes"));
}

TEST(MemoryRendezvous, DoesNotWaitForAStoppedWriterForEver) {
  const RendezvousMemory memory;
  const auto store = make_memory_rendezvous(memory.descriptor());
  const FileDescriptor other(open(path_of(memory.descriptor()).c_str(), O_RDWR | O_CLOEXEC));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  ASSERT_EQ(fcntl(other.get(), F_OFD_SETLK, &whole), 0);
  EXPECT_THAT(error_of<CommError>([&] { store->set("key", "value"); }), HasSubstr("keeps its lock"));
  whole.l_type = F_UNLCK;
  ASSERT_EQ(fcntl(other.get(), F_OFD_SETLK, &whole), 0);
  store->set("key", "value");
}

TEST(MemoryRendezvous, NeedsAnOpenDescriptor) {
  EXPECT_THAT(error_of<CommError>([] { make_memory_rendezvous(-1); }), HasSubstr("/proc/self/fd/-1"));
}

TEST(DirectoryRendezvous, IsPrivateAndLeavesNoTemporaryFiles) {
  const plait::test::TemporaryDirectory parent;
  const std::string path = parent.path() + "/store";
  const auto store = make_directory_rendezvous(path);
  store->set("a", "1");
  EXPECT_THROW(store->set("a", "2"), CommError);
  store->abort("reason");
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 2) << "the key and the reason";
}

// Who can write to the directory around it can put another one in its place.
TEST(DirectoryRendezvous, StaysInTheDirectoryThatItHasSeen) {
  const plait::test::TemporaryDirectory parent;
  const std::string path = parent.path() + "/store", moved = parent.path() + "/moved";
  const auto store = make_directory_rendezvous(path);
  std::filesystem::rename(path, moved);
  std::filesystem::create_directory(path);
  store->set("address", "mine");
  EXPECT_TRUE(std::filesystem::is_empty(path));
  std::ofstream(path + "/key-other") << "forged";
  std::ofstream(path + "/abort") << "forged";
  EXPECT_EQ(store->find("other"), std::nullopt);
  EXPECT_EQ(store->get("address", milliseconds(0)), "mine");

  std::filesystem::remove_all(path);
  std::filesystem::create_directory_symlink(moved, path);
  EXPECT_THAT(error_of<CommError>([&] { make_directory_rendezvous(path); }), HasSubstr("not a directory"));
}

TEST(DirectoryRendezvous, DoesNotReadMoreThanARankWrites) {
  const plait::test::TemporaryDirectory parent;
  const auto store = make_directory_rendezvous(parent.path() + "/store");
  store->set("big", "");
  std::filesystem::resize_file(parent.path() + "/store/key-big", Rendezvous::longest_value + 1);
  EXPECT_THAT(error_of<CommError>([&] { store->get("big", milliseconds(0)); }),
              AllOf(HasSubstr("key-big"), HasSubstr("no rank writes")));
}

TEST(DirectoryRendezvous, RefusesADirectoryThatOthersCanEnter) {
  const plait::test::TemporaryDirectory parent;
  const std::string path = parent.path() + "/open";
  std::filesystem::create_directory(path);
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_THAT(error_of<CommError>([&] { make_directory_rendezvous(path); }), AllOf(HasSubstr(path), HasSubstr("chmod 700")));
}

TEST(DirectoryRendezvous, NamesAPathThatCannotBeUsed) {
  EXPECT_THAT(error_of<CommError>([] { make_directory_rendezvous("/nowhere/at/all"); }), HasSubstr("/nowhere/at/all"));
  EXPECT_THAT(error_of<CommError>([] { make_directory_rendezvous("/dev/null"); }), HasSubstr("not a directory"));
  const plait::test::TemporaryDirectory parent;
  EXPECT_THAT(error_of<CommError>([&] { make_directory_rendezvous(parent.path())->set(std::string(300, 'k'), ""); }),
              HasSubstr("too long"));
}

}  // namespace
}  // namespace plait::comm::test
