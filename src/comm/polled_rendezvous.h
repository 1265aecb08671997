// A rendezvous that is polled, since nothing wakes a waiter when a key is set.
#pragma once

#include "comm/rendezvous.h"

namespace plait::comm {

class PolledRendezvous : public Rendezvous {
 public:
  std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) final;

 protected:
  virtual std::optional<std::string> abort_reason() = 0;  // nullopt before abort()
};

}  // namespace plait::comm
