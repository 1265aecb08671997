#include "comm/p2p/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "comm/meeting.h"
#include "comm/p2p/region_kinds.h"
#include "core/enqueued_counters.h"
#include "core/error.h"
#include "core/format.h"
#include "core/stream.h"

namespace plait::comm::p2p {
namespace {

// Freed by the last thread, which may be any; nobody else uses its allocator.
class SharedMemory {
 public:
  SharedMemory(Device device, std::size_t bytes) : memory_(device), buffer_(memory_.allocate(bytes)), bytes_(bytes) {
    const Stream stream(device);
    stream.ref().zero(buffer_.data(), bytes);
    stream.ref().synchronize();
    if (device.shared) enqueued_counters().begin(buffer_.data(), bytes);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(buffer_.data()); }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return memory_.device(); }

 private:
  DeviceMemory memory_;
  Buffer buffer_;
  std::size_t bytes_;
};

class ThreadMemory final : public Region {
 public:
  explicit ThreadMemory(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {
    data_ = memory_->data();
    bytes_ = memory_->bytes();
  }
  void offer(const std::string& name, HandleExchange& exchange) const override { exchange.give_object(name, memory_); }

 private:
  std::shared_ptr<SharedMemory> memory_;
};

std::unique_ptr<Region> make_thread_memory(const RegionSpec& spec) {
  if (spec.used_by.is_cuda()) enable_peer_access(spec.used_by, spec.memory_on);
  auto memory = std::make_shared<SharedMemory>(spec.memory_on, spec.bytes);
  make_current(spec.used_by);  // allocating made the memory's device current
  return std::make_unique<ThreadMemory>(std::move(memory));
}

std::unique_ptr<Region> import_thread_memory(const RegionSpec& spec, HandleExchange& exchange) {
  auto memory = std::static_pointer_cast<SharedMemory>(exchange.take_object(spec.name));
  if (memory->bytes() != spec.bytes) {
    throw CommError("region '" + spec.name + "': the peer made it with " + std::to_string(memory->bytes()) +
                    " bytes instead of " + std::to_string(spec.bytes));
  }
  if (spec.used_by.is_cuda()) enable_peer_access(spec.used_by, memory->device());
  return std::make_unique<ThreadMemory>(std::move(memory));
}

std::size_t file_bytes(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Reading a file beyond its shrunken end kills the reader (SIGBUS), so both ends insist on seals.
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;

// Memory that two ranks, threads or processes, both map: an anonymous file that exists only as long as it is mapped.
class HostMemory final : public Region {
 public:
  // `made`: this end made it, and can offer it.
  HostMemory(const RegionSpec& spec, FileDescriptor file, bool made) : length_(file_bytes(spec.bytes)) {
    mapping_ = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapping_ == MAP_FAILED) {
      throw DeviceError("region '" + spec.name + "': cannot map " + format_bytes(static_cast<double>(length_)) +
                        " of shared memory: " + errno_text() + "; is there a limit on this process's memory (ulimit -v)?");
    }
    bytes_ = spec.bytes;
    try {
      pinned_ = spec.used_by.is_cuda();
      data_ = pinned_ ? pin(mapping_, length_, spec.used_by) : static_cast<std::byte*>(mapping_);
    } catch (...) {
      ::munmap(mapping_, length_);
      throw;
    }
    if (made) file_ = std::move(file);
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() override {
    if (pinned_) unpin(mapping_);
    ::munmap(mapping_, length_);
  }
  void offer(const std::string& name, HandleExchange& exchange) const override {
    if (file_.get() < 0) return Region::offer(name, exchange);
    exchange.give_descriptor(name, file_.get());
  }

 private:
  FileDescriptor file_;  // if it was made here
  std::size_t length_;
  void* mapping_ = nullptr;
  bool pinned_ = false;
};

FileDescriptor make_file(const RegionSpec& spec) {
  // Checked before pages are taken: the system would rather kill a process than refuse the last page.
  if (const std::size_t available = memory_info({}).free_bytes; spec.bytes > available) {
    throw DeviceError("region '" + spec.name + "': cannot make " + format_bytes(static_cast<double>(spec.bytes)) +
                      " of shared memory: " + format_bytes(static_cast<double>(available)) + " are available");
  }
  FileDescriptor file(::memfd_create("plait-mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto refuse = [&](int error) {
    throw DeviceError("region '" + spec.name + "': cannot make " + format_bytes(static_cast<double>(spec.bytes)) +
                      " of shared memory: " + std::strerror(error) +
                      "; look at the memory limits of this process, its user and its container");
  };
  if (file.get() < 0) refuse(errno);
  const auto length = static_cast<off_t>(file_bytes(spec.bytes));
  if (::ftruncate(file.get(), length) != 0) refuse(errno);
  // The pages are taken now, zeroed: otherwise the first access would be killed when memory is short.
  if (const int error = ::posix_fallocate(file.get(), 0, length)) refuse(error);
  if (::fcntl(file.get(), F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) refuse(errno);
  return file;
}

void check_file(const RegionSpec& spec, const FileDescriptor& file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    throw CommError("region '" + spec.name + "': cannot inspect the peer's memory: " + errno_text());
  }
  if (!S_ISREG(status.st_mode)) throw CommError("region '" + spec.name + "': what the peer sent is not shared memory");
  if (static_cast<std::size_t>(status.st_size) != file_bytes(spec.bytes)) {
    throw CommError("region '" + spec.name + "': the peer's memory has " + std::to_string(status.st_size) +
                    " bytes instead of " + std::to_string(file_bytes(spec.bytes)));
  }
  const int sealed = ::fcntl(file.get(), F_GET_SEALS);
  if (sealed < 0 || (sealed & seals) != seals) {
    throw CommError("region '" + spec.name + "': the peer's memory is not sealed, so its size could change while it is in use");
  }
}

std::unique_ptr<Region> make_host_memory(const RegionSpec& spec) {
  return std::make_unique<HostMemory>(spec, make_file(spec), true);
}

std::unique_ptr<Region> import_host_memory(const RegionSpec& spec, HandleExchange& exchange) {
  FileDescriptor file = exchange.take_descriptor(spec.name);
  check_file(spec, file);
  return std::make_unique<HostMemory>(spec, std::move(file), false);
}

void check_spec(const RegionSpec& spec) {
  require(!spec.name.empty() && spec.bytes > 0, "a region needs a name and a size");
  switch (spec.kind) {
    case RegionKind::thread_memory:
      require(spec.memory_on.kind == spec.used_by.kind,
              "region '" + spec.name + "': for GPUs host memory is RegionKind::host_memory");
      return;
    case RegionKind::host_memory:
      require(!spec.memory_on.is_cuda(), "region '" + spec.name + "': host memory is not a GPU's");
      return;
    case RegionKind::ipc:
    case RegionKind::vmm:
      require(spec.memory_on.is_cuda() && spec.used_by.is_cuda(),
              "region '" + spec.name + "': ipc and vmm are for GPUs' memory");
      return;
  }
}

}  // namespace

void Region::offer(const std::string& name, HandleExchange&) const {
  throw InternalError("region '" + name + "': only who has made the memory can offer it");
}

std::unique_ptr<Region> make_region(const RegionSpec& spec) {
  check_spec(spec);
  switch (spec.kind) {
    case RegionKind::thread_memory: return make_thread_memory(spec);
    case RegionKind::ipc: return make_ipc(spec);
    case RegionKind::vmm: return make_vmm(spec);
    case RegionKind::host_memory: return make_host_memory(spec);
  }
  throw InternalError("region '" + spec.name + "' is of no kind");
}

std::unique_ptr<Region> export_region(const RegionSpec& spec, HandleExchange& exchange) {
  std::unique_ptr<Region> region = make_region(spec);
  region->offer(spec.name, exchange);
  return region;
}

std::unique_ptr<Region> import_region(const RegionSpec& spec, HandleExchange& exchange) {
  check_spec(spec);
  switch (spec.kind) {
    case RegionKind::thread_memory: return import_thread_memory(spec, exchange);
    case RegionKind::ipc: return import_ipc(spec, exchange);
    case RegionKind::vmm: return import_vmm(spec, exchange);
    case RegionKind::host_memory: return import_host_memory(spec, exchange);
  }
  throw InternalError("region '" + spec.name + "' is of no kind");
}

std::optional<RegionKind> symmetric_kind(Transport transport, DeviceKind device) {
  switch (transport) {
    case Transport::direct: return RegionKind::thread_memory;
    case Transport::vmm: return RegionKind::vmm;
    case Transport::host: return device == DeviceKind::host ? std::optional(RegionKind::host_memory) : std::nullopt;
    case Transport::ipc:    // its importers would have to release it first
    case Transport::relay:  // as with host memory between GPUs, data does not arrive where it is read
    case Transport::nccl: break;
  }
  return std::nullopt;
}

SymmetricMemory::SymmetricMemory(const SymmetricMemorySpec& spec, Rendezvous& store) : bytes_(spec.bytes) {
  const auto own = static_cast<std::size_t>(spec.rank);
  RegionSpec region{
      .kind = spec.kind, .name = spec.name, .bytes = spec.bytes, .memory_on = spec.device, .used_by = spec.device};
  regions_.resize(spec.members.size());
  regions_[own] = make_region(region);
  for (std::size_t low = 0; low < spec.members.size(); ++low) {
    for (std::size_t high = low + 1; high < spec.members.size(); ++high) {
      if (low != own && high != own) continue;
      const std::vector<int> pair{spec.members[low], spec.members[high]};
      const std::string name = spec.name + "." + std::to_string(pair[0]) + "." + std::to_string(pair[1]);
      Meeting meeting(store, name, spec.members[own], pair, spec.timeout);
      HandleExchange exchange(meeting);
      const auto offer = [&] { regions_[own]->offer(name, exchange); };
      const auto import = [&] {
        region.name = name;
        regions_[own == low ? high : low] = import_region(region, exchange);
      };
      own == low ? offer() : import();
      own == low ? import() : offer();
    }
  }
}

}  // namespace plait::comm::p2p
