// Somebody on this machine who connects to every port that a process opens.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tcp_stranger.h"

namespace plait::comm::test {

// Inodes of the sockets of this process.
inline std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    std::array<char, 64> target{};
    const ssize_t length = ::readlink(entry.path().c_str(), target.data(), target.size());
    const std::string text(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    if (text.starts_with("socket:[")) inodes.insert(text.substr(8, text.size() - 9));
  }
  return inodes;
}

// Ports at which this process listens now.
inline std::set<int> listening_ports() {
  const std::set<std::string> own = own_sockets();
  std::set<int> ports;
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmissions, user, timeout, inode;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmissions >> user >> timeout >> inode;
    constexpr const char* listening = "0A";
    if (state == listening && own.contains(inode)) ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

class Stranger {
 public:
  // At each port that opens: `silent` connections that say nothing, and one for each of the things that strangers say; each
  // second one is closed at once.
  explicit Stranger(int silent = 3) : known_(listening_ports()) {
    thread_ = std::thread([this, silent] {
      while (!done_) {
        for (const int port : listening_ports()) {
          if (!known_.insert(port).second) continue;
          ++ports_;
          for (int i = 0; i < silent; ++i) keep(connect_to(port));
          for (const std::string& words : things_strangers_say()) {
            FileDescriptor socket = connect_to(port);
            send_text(socket, words);
            if (connections_ % 2 == 0) socket = FileDescriptor();
            keep(std::move(socket));
          }
        }
      }
    });
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() { leave(); }

  void leave() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int ports() const { return ports_; }  // that it has found
  int connections() const { return connections_; }
  // Everything that was said to it.
  std::string heard() {
    leave();
    std::string all;
    for (const FileDescriptor& socket : sockets_) all += heard_within(socket, 0);
    return all;
  }

 private:
  void keep(FileDescriptor socket) {
    ++connections_;
    if (socket) sockets_.push_back(std::move(socket));
  }

  std::set<int> known_;
  std::vector<FileDescriptor> sockets_;
  std::atomic<bool> done_ = false;
  std::atomic<int> ports_ = 0, connections_ = 0;
  std::thread thread_;
};

}  // namespace plait::comm::test
