// SPDX-License-Identifier: Apache-2.0
#include "pack.h"

#include <cmath>
#include <cstring>

#include "abi.h"
#include "engine.h"

namespace {

uint16_t narrow(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float number(const Source& source, int output, int input) {
  if (output >= source.outputs || input >= source.inputs) return 0;
  long at = static_cast<long>(output) * source.inputs + input;
  if (source.kind == FLOAT32) return static_cast<const float*>(source.values)[at];
  uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(source.values)[at]) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void float_panel(const Source& source, int from, float* to) {
  for (int column = 0; column < PANEL; ++column)
    for (int k = 0; k < source.inputs; ++k)
      to[static_cast<long>(k) * PANEL + column] = number(source, from + column, k);
}

// Columns j and j + PANEL / 2 lie together.
void bfloat_panel(const Source& source, int from, uint16_t* to) {
  constexpr int HALF = PANEL / 2;
  for (int column = 0; column < PANEL; ++column)
    for (int k = 0; k < source.inputs; ++k)
      to[static_cast<long>(k) * PANEL + column % HALF * 2 + column / HALF] =
          narrow(number(source, from + column, k));
}

// Inputs k and k + 1 of a column lie together.
void int8_group(const Source& source, int output, int input, int column, int8_t* to) {
  float values[GROUP], largest = 0;
  for (int k = 0; k < GROUP; ++k) {
    values[k] = number(source, output, input + k);
    largest = std::fmax(largest, std::fabs(values[k]));
  }
  float factor = largest > 0 ? 127 / largest : 0;
  for (int k = 0; k < GROUP; ++k)
    to[k / 2 * 2 * PANEL + column * 2 + k % 2] =
        static_cast<int8_t>(std::lrintf(values[k] * factor));
  reinterpret_cast<float*>(to + GROUP * PANEL)[column] = largest / 127;
}

void int8_panel(const Source& source, int from, int8_t* to) {
  for (int k = 0; k < source.inputs; k += GROUP, to += GROUP_BYTES)
    for (int column = 0; column < PANEL; ++column)
      int8_group(source, from + column, k, column, to);
}

struct Packing {
  const Source* source;
  int kind;
  char* panels;
  int first, step;
};

void pack_one(void* context, int index, int) {
  const Packing& packing = *static_cast<const Packing*>(context);
  const Source& source = *packing.source;
  long at = packing.first + static_cast<long>(index) * packing.step, inputs = source.inputs;
  if (packing.kind == INT8)
    int8_panel(source, index * PANEL,
               reinterpret_cast<int8_t*>(packing.panels) +
                   at * ((inputs + GROUP - 1) / GROUP) * GROUP_BYTES);
  else if (packing.kind == BFLOAT16)
    bfloat_panel(source, index * PANEL,
                 reinterpret_cast<uint16_t*>(packing.panels) + at * inputs * PANEL);
  else
    float_panel(source, index * PANEL,
                reinterpret_cast<float*>(packing.panels) + at * inputs * PANEL);
}

}  // namespace

void pack(Pool* pool, const Source& source, int kind, void* panels, int first, int step) {
  Packing packing{&source, kind, static_cast<char*>(panels), first, step};
  pool_run(pool, pack_one, &packing, (source.outputs + PANEL - 1) / PANEL);
}
