// A rendezvous that is looked at again and again, since nothing wakes a waiter when a key is set.
#pragma once

#include "comm/rendezvous.h"

namespace plait::comm {

class PolledRendezvous : public Rendezvous {
 public:
  std::optional<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) final;

 protected:
  virtual std::optional<std::string> abort_reason() = 0;  // nothing before abort()
};

}  // namespace plait::comm
