// y[rows, columns] += bias[columns], for products whose epilogue cannot add it.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace plait::ops::cuda {

void add_bias(StreamRef stream, View bias, View y);

}  // namespace plait::ops::cuda
