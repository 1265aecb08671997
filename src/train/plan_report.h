// The plan that an incarnation carries out, as rank 0 tells it at the start and holds the measurements against it at the end.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "parallel/ledger.h"
#include "train/job.h"
#include "train/report/accuracy.h"
#include "train/session.h"

namespace plait::train {

class PlanReport {
 public:
  // Collective. Rank 0 checks the programs of all ranks, says what runs where, and how ranks and their collectives are
  // connected. The arguments outlive the report.
  PlanReport(Job& job, World& world, Session& session);

  // The contents of plan.json; null on other ranks than 0.
  const nlohmann::ordered_json& document() const { return document_; }

  // Collective, at the end of a run: says where the time of a step went, and how that and the memory compare with the
  // prediction, which prediction.json then holds beside them. `run`: the steps of this rank that count; without any it does
  // nothing.
  void say_measured(const parallel::LedgerSum& run);

 private:
  Job& job_;
  World& world_;
  Session& session_;
  nlohmann::ordered_json document_;
  std::optional<Accuracy> prediction_;  // rank 0
};

}  // namespace plait::train
