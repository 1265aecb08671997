#include "study/records.h"

#include "parallel/ledger_json.h"
#include "parallel/plan_json.h"

namespace plait::study {

using Json = nlohmann::ordered_json;

parallel::Layout LayoutRule::read(const JsonField& field) const {
  AxisSizes sizes;
  std::int64_t left = ranks;
  for (const Name<plait::Axis>& axis : names<plait::Axis>) {
    sizes[axis.value] = field[std::string(axis.text).c_str()].whole(1, left);
    left /= sizes[axis.value];
  }
  const parallel::Layout layout = parallel::make_layout(sizes);
  if (layout.ranks() != ranks) {
    const std::string last(names<plait::Axis>.back().text);
    field.refuse(last.c_str(), "must be such that the axes make " + std::to_string(ranks) + " ranks");
  }
  return layout;
}

Json LayoutRule::write(const parallel::Layout& layout) const { return parallel::to_json(layout); }

parallel::Ledger LedgerRule::read(const JsonField& field) const {
  try {
    return field.json().get<parallel::Ledger>();
  } catch (const Json::exception& error) {
    const std::string why = error.what();
    const auto name = why.find("] ");  // the library's, of the error
    field.refuse("must be a ledger as plait writes it: " + why.substr(name == std::string::npos ? 0 : name + 2));
  }
}

Json LedgerRule::write(const parallel::Ledger& ledger) const { return ledger; }

}  // namespace plait::study
