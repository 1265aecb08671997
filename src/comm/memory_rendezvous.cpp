// A rendezvous between processes of one host: a journal of keys in shared memory that has no name.
//
// A record is a word of 64 bits (bit 63 set, bytes of the key, bytes of the value), then key and value, padded to 8 bytes.
// Writers hold a lock on the whole file, which is released with their process, and write the word last: a record whose writer
// died before that is not in the journal, and the next writer cuts it off.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "comm/rendezvous.h"
#include "core/error.h"

namespace plait::comm {
namespace {

constexpr std::uint64_t committed = std::uint64_t{1} << 63;
constexpr std::uint64_t longest_key = std::uint64_t{1} << 16;
constexpr std::uint64_t header_bytes = sizeof(std::uint64_t);
constexpr std::chrono::milliseconds longest_lock{5000};
constexpr std::chrono::microseconds lock_pause{500};

// The first character of a record's key says what kind of record it is.
std::string key_record(const std::string& key) { return "k" + key; }
const std::string abort_record = "a";

[[noreturn]] void fail(const std::string& what) { throw CommError("rendezvous: cannot " + what + ": " + errno_text()); }

class MemoryRendezvous final : public PolledRendezvous {
 public:
  explicit MemoryRendezvous(int descriptor) {
    // Opened anew, because locks belong to an open file, which an inherited descriptor shares with other processes.
    const std::string path = path_of(descriptor);
    descriptor_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!descriptor_) fail("open the shared memory " + path);
  }

  bool try_set(const std::string& key, const std::string& value) override { return append(key_record(key), value); }
  std::optional<std::string> find(const std::string& key) override { return value_of(key_record(key)); }
  void abort(const std::string& reason) noexcept override {
    try {
      append(abort_record, reason);
    } catch (const std::exception&) {
      return;  // there is no memory for it; ranks end by their time limits
    }
  }

 protected:
  std::optional<std::string> abort_reason() override { return value_of(abort_record); }

 private:
  struct Place {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };

  // A lock on the file for the object's life. mutex_ keeps this process's threads apart, since they share the open file.
  class Lock {
   public:
    Lock(int descriptor, short kind) : descriptor_(descriptor) { set(kind); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() {
      struct flock whole = whole_file(F_UNLCK);
      ::fcntl(descriptor_, F_OFD_SETLK, &whole);
    }

   private:
    static struct flock whole_file(short kind) {
      struct flock whole{};
      whole.l_type = kind;
      whole.l_whence = SEEK_SET;
      return whole;
    }
    // A holder releases the lock within microseconds, unless its process is stopped. A waiter without a limit could not even
    // report that. The limit counts pauses, not time, which also passes while the waiter itself is stopped.
    void set(short kind) {
      struct flock whole = whole_file(kind);
      for (int pauses = 0; ::fcntl(descriptor_, F_OFD_SETLK, &whole) != 0; ++pauses) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) fail("lock the shared memory");
        if (pauses == longest_lock / lock_pause)
          throw CommError("rendezvous: a rank of this host keeps its lock; is it stopped (SIGSTOP, or a debugger)?");
        std::this_thread::sleep_for(lock_pause);
      }
    }
    int descriptor_;
  };

  bool append(const std::string& record, const std::string& value) {
    require(record.size() <= longest_key && value.size() <= longest_value, "a key or value is too long for the rendezvous");
    std::lock_guard guard(mutex_);
    const Lock lock(descriptor_.get(), F_WRLCK);
    read_records();
    if (places_.contains(record)) return false;
    struct stat status{};
    if (::fstat(descriptor_.get(), &status) != 0) fail("look at the shared memory");
    const auto end = static_cast<off_t>(end_);
    if (status.st_size > end && ::ftruncate(descriptor_.get(), end) != 0) fail("cut off a dead writer's remains");
    const std::uint64_t at = end_ + header_bytes;
    write(at, record.data(), record.size());
    write(at + record.size(), value.data(), value.size());
    const std::uint64_t header = committed | std::uint64_t{record.size()} << 32 | value.size();
    write(end_, &header, sizeof header);
    enter(record, value.size());
    return true;
  }

  std::optional<std::string> value_of(const std::string& record) {
    std::lock_guard guard(mutex_);
    if (header() & committed) {
      const Lock lock(descriptor_.get(), F_RDLCK);  // waits for the writer, so its record is visible
      read_records();
    }
    const auto place = places_.find(record);
    if (place == places_.end()) return std::nullopt;
    std::string value(place->second.bytes, '\0');
    read(place->second.offset, value.data(), value.size());
    return value;
  }

  // The word at the end of the known records; 0 if there is nothing yet.
  std::uint64_t header() const {
    std::uint64_t word = 0;
    ssize_t count = 0;
    while ((count = ::pread(descriptor_.get(), &word, sizeof word, static_cast<off_t>(end_))) < 0) {
      if (errno != EINTR) fail("read the shared memory");
    }
    return count == sizeof word ? word : 0;
  }

  void read_records() {
    for (std::uint64_t word = header(); word & committed; word = header()) {
      const std::uint64_t record_bytes = (word & ~committed) >> 32;
      const std::uint64_t value_bytes = word & 0xffff'ffff;
      if (record_bytes > longest_key || value_bytes > longest_value) {
        throw CommError("rendezvous: the shared memory holds what no rank writes");
      }
      std::string record(record_bytes, '\0');
      read(end_ + header_bytes, record.data(), record.size());
      enter(record, value_bytes);
    }
  }

  // Enters the record at the end of the known ones.
  void enter(const std::string& record, std::size_t value_bytes) {
    const std::uint64_t value = end_ + header_bytes + record.size();
    places_.emplace(record, Place{value, value_bytes});
    end_ = (value + value_bytes + header_bytes - 1) / header_bytes * header_bytes;
  }

  void read(std::uint64_t offset, void* data, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count =
          ::pread(descriptor_.get(), static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
      if (count == 0) throw CommError("rendezvous: the shared memory ends within a record");
      if (count < 0 && errno != EINTR) fail("read the shared memory");
      if (count > 0) done += static_cast<std::size_t>(count);
    }
  }

  void write(std::uint64_t offset, const void* data, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count =
          ::pwrite(descriptor_.get(), static_cast<const char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno != EINTR) fail("write to the shared memory");
      if (count > 0) done += static_cast<std::size_t>(count);
    }
  }

  FileDescriptor descriptor_;
  std::mutex mutex_;  // guards the members below
  std::map<std::string, Place> places_;
  std::uint64_t end_ = 0;  // of the known records
};

}  // namespace

RendezvousMemory::RendezvousMemory() : descriptor_(::memfd_create("plait-rendezvous", MFD_CLOEXEC)) {
  if (!descriptor_) fail("make shared memory");
}

std::shared_ptr<Rendezvous> make_memory_rendezvous(int descriptor) { return std::make_shared<MemoryRendezvous>(descriptor); }

}  // namespace plait::comm
