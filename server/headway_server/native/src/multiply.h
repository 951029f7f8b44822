// SPDX-License-Identifier: Apache-2.0
// Lines of inputs times a packed matrix, panel by panel over the threads. What becomes of a panel's
// outputs (stored, added, gated) is decided while they are in the first cache.
#pragma once

#include "engine.h"
#include "tile_int8.h"

namespace ISA {

constexpr int UNPACKED_ROWS = 2 * TILE_ROWS;  // with more, widening a panel first pays off
constexpr int DEPTH = 320;  // inputs at once: their part of a panel stays in the first cache

template <class Body>
inline void parallel(Pool* pool, int count, Body body) {
  Task task = [](void* context, int index, int worker) {
    (*static_cast<Body*>(context))(index, worker);
  };
  pool_run(pool, task, &body, count);
}

// Work on single lines is too short to be worth waking threads for when there are few of them.
template <class Body>
inline void for_lines(Pool* pool, int lines, Body body) {
  constexpr int FEW = 4;
  if (lines <= FEW) {
    for (int line = 0; line < lines; ++line) body(line);
    return;
  }
  int share = larger(1, lines / (pool_threads(pool) * 4));
  parallel(pool, (lines + share - 1) / share, [=](int index, int) {
    for (int line = index * share; line < smaller(lines, (index + 1) * share); ++line) body(line);
  });
}

struct Lines {
  const float* values;
  int rows;
  long stride;
};

// Memory that multiply needs, by thread and for the quantised inputs.
struct Workspace {
  float* by_worker;
  long worker_stride;
  int16_t* numbers;
  float* scales;
};

inline long worker_floats(int rows) { return 2L * rows * PANEL + DEPTH * PANEL; }

inline void float_panel(Lines input, const float* panel, int inputs, float* output) {
  int step = input.rows > UNPACKED_ROWS ? DEPTH : inputs;
  for (int from = 0; from < inputs; from += step)
    tiles<FloatLine>(input.values + from, panel + static_cast<long>(from) * PANEL, input.rows,
                     smaller(step, inputs - from), output, {input.stride, PANEL, PANEL}, from > 0);
}

inline void bfloat_panel(Lines input, const uint16_t* panel, int inputs, float* output,
                         float* unpacked) {
  Strides stride{input.stride, PANEL, PANEL};
  if (input.rows <= UNPACKED_ROWS)
    return tiles<BfloatLine>(input.values, panel, input.rows, inputs, output, stride, false);
  for (int from = 0; from < inputs; from += DEPTH) {
    int depth = smaller(DEPTH, inputs - from);
    for (int k = 0; k < depth; ++k) {
      Floats line[VECTORS];
      BfloatLine::read(panel + static_cast<long>(from + k) * PANEL, line);
      for (int v = 0; v < VECTORS; ++v) store(unpacked + k * PANEL + v * LANES, line[v]);
    }
    tiles<FloatLine>(input.values + from, unpacked, input.rows, depth, output, stride, from > 0);
  }
}

inline void add_bias(const Matrix& matrix, int panel, int rows, float* output) {
  if (!matrix.bias) return;
  for (int v = 0; v < VECTORS; ++v) {
    Floats bias = load(matrix.bias + static_cast<long>(panel) * PANEL + v * LANES);
    for (int r = 0; r < rows; ++r) {
      float* at = output + r * PANEL + v * LANES;
      store(at, load(at) + bias);
    }
  }
}

// output [rows, PANEL]
inline void one_panel(const Matrix& matrix, int panel, Lines input, QuantisedLines quantised,
                      float* output, float* unpacked) {
  long index = panel, inputs = matrix.inputs;
  if (matrix.kind == INT8) {
    const int8_t* panels = static_cast<const int8_t*>(matrix.panels);
    tiles_int8(quantised, input.rows, panels + index * quantised.groups * GROUP_BYTES, output);
  } else if (matrix.kind == BFLOAT16) {
    const uint16_t* panels = static_cast<const uint16_t*>(matrix.panels);
    bfloat_panel(input, panels + index * inputs * PANEL, matrix.inputs, output, unpacked);
  } else {
    const float* panels = static_cast<const float*>(matrix.panels);
    float_panel(input, panels + index * inputs * PANEL, matrix.inputs, output);
  }
  add_bias(matrix, panel, input.rows, output);
}

// finish(first panel, outputs [TOGETHER][rows][PANEL]) for every TOGETHER panels.
template <int TOGETHER, class Finish>
inline void multiply(Pool* pool, const Matrix& matrix, Lines input, Workspace space, Finish finish) {
  QuantisedLines quantised{space.numbers, space.scales, (matrix.inputs + GROUP - 1) / GROUP};
  if (matrix.kind == INT8)
    for_lines(pool, input.rows, [=](int row) {
      long at = static_cast<long>(row) * quantised.groups;
      quantise_line(input.values + row * input.stride, matrix.inputs, space.numbers + at * GROUP,
                    space.scales + at);
    });
  int units = (matrix.outputs + PANEL - 1) / PANEL / TOGETHER;
  int share = larger(1, units / (pool_threads(pool) * 4));
  parallel(pool, (units + share - 1) / share, [=, &matrix](int index, int worker) {
    float* outputs = space.by_worker + worker * space.worker_stride;
    float* unpacked = outputs + 2L * input.rows * PANEL;
    for (int unit = index * share; unit < smaller(units, (index + 1) * share); ++unit) {
      for (int i = 0; i < TOGETHER; ++i)
        one_panel(matrix, unit * TOGETHER + i, input, quantised,
                  outputs + static_cast<long>(i) * input.rows * PANEL, unpacked);
      finish(unit * TOGETHER, outputs);
    }
  });
}

// Outputs to, or added to, lines of `stride` numbers.
inline void multiply_into(Pool* pool, const Matrix& matrix, Lines input, Workspace space,
                          float* output, long stride, bool adds) {
  multiply<1>(pool, matrix, input, space, [=, &matrix](int panel, const float* outputs) {
    int columns = smaller(PANEL, matrix.outputs - panel * PANEL);
    for (int r = 0; r < input.rows; ++r) {
      float* to = output + r * stride + static_cast<long>(panel) * PANEL;
      const float* from = outputs + r * PANEL;
      for (int c = 0; c < columns; ++c) to[c] = adds ? to[c] + from[c] : from[c];
    }
  });
}

// activation(gate) * up, of panels that hold the two in turn.
inline void multiply_gated(Pool* pool, const Matrix& matrix, Lines input, Workspace space,
                           int activation, float* output, long stride) {
  multiply<2>(pool, matrix, input, space, [=](int panel, const float* outputs) {
    const float* ups = outputs + static_cast<long>(input.rows) * PANEL;
    for (int r = 0; r < input.rows; ++r)
      for (int v = 0; v < VECTORS; ++v) {
        int at = r * PANEL + v * LANES;
        store(output + r * stride + panel / 2 * PANEL + v * LANES,
              activate(load(outputs + at), activation) * load(ups + at));
      }
  });
}

}  // namespace ISA
