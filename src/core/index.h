// Converts ints to container indices: ranks, stages and device numbers are ints, containers are indexed by std::size_t.
#pragma once

#include <cstddef>

namespace plait {

constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace plait
