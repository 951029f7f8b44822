// SPDX-License-Identifier: Apache-2.0
// From a weight as it is stored, row by row, to the panels that the kernels read in order.
#pragma once

#include <cstdint>

struct Pool;

extern "C" {
struct Source {
  const void* values;  // [outputs, inputs], FLOAT32 or BFLOAT16
  int32_t outputs;
  int32_t inputs;
  int32_t kind;
};
}

// The source's panels become the panels first, first + step, ... of `panels`.
void pack(Pool* pool, const Source& source, int kind, void* panels, int first, int step);
