// The counter, through CUPTI's callbacks on the driver API.
#include "cuda_calls/cuda_calls.h"

#include <cupti.h>

#include <mutex>
#include <source_location>

#include "core/error.h"
#include "cuda_calls/call_kind.h"

namespace plait {
namespace {

void check(CUptiResult status, std::source_location where = std::source_location::current()) {
  if (status == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  static_cast<void>(cuptiGetResultString(status, &text));
  throw DeviceError(std::string("CUPTI: ") + (text ? text : "unknown error") + " [" + to_string(where) + "]");
}

}  // namespace

class CudaCallCounter::Subscription {
 public:
  Subscription() {
    check(cuptiSubscribe(&subscriber_, &Subscription::on_call, this));
    const CUptiResult enabled = cuptiEnableDomain(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API);
    if (enabled != CUPTI_SUCCESS) {
      static_cast<void>(cuptiUnsubscribe(subscriber_));
      check(enabled);
    }
  }
  ~Subscription() {
    if (subscriber_) static_cast<void>(cuptiUnsubscribe(subscriber_));
  }

  CudaCallCounts stop() {
    if (subscriber_) {
      check(cuptiUnsubscribe(subscriber_));
      subscriber_ = nullptr;
    }
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  static void CUPTIAPI on_call(void* self, CUpti_CallbackDomain, CUpti_CallbackId, const void* raw) {
    const auto& call = *static_cast<const CUpti_CallbackData*>(raw);
    if (call.callbackSite == CUPTI_API_ENTER && call.functionName) static_cast<Subscription*>(self)->count(call.functionName);
  }

  void count(const std::string& name) {
    std::lock_guard lock(mutex_);
    ++counts_.calls[name];
    switch (call_kind(name)) {
      case CallKind::synchronization: ++counts_.synchronizations; break;
      case CallKind::allocation: ++counts_.allocations; break;
      case CallKind::free: ++counts_.frees; break;
      case CallKind::launch: ++counts_.launches; break;
      case CallKind::other: break;
    }
  }

  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::mutex mutex_;
  CudaCallCounts counts_;
};

CudaCallCounter::CudaCallCounter() : subscription_(std::make_unique<Subscription>()) {}
CudaCallCounter::~CudaCallCounter() = default;
CudaCallCounts CudaCallCounter::stop() { return subscription_->stop(); }

}  // namespace plait
