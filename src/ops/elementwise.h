// Elementwise odds and ends.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace plait::ops {

// to[i] = from[i], converted between f32, f64 (host only) and bf16 (round to nearest even).
void convert(StreamRef stream, View from, View to);

// y[i] += x[i], same type.
void add(StreamRef stream, View x, View y);

}  // namespace plait::ops
