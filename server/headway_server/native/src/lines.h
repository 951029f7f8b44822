// SPDX-License-Identifier: Apache-2.0
// What is done to one token's line of numbers between the matrix products.
#pragma once

#include "simd.h"

namespace ISA {

// weight * x / sqrt(mean(x^2) + epsilon); in place if output is input.
inline void normalise(const float* input, const float* weight, int size, float epsilon,
                      float* output) {
  Floats squares{};
  int i = 0;
  for (; i + LANES <= size; i += LANES) squares += load(input + i) * load(input + i);
  float total = sum(squares);
  for (; i < size; ++i) total += input[i] * input[i];
  float factor = 1.0f / __builtin_sqrtf(total / size + epsilon);
  for (i = 0; i + LANES <= size; i += LANES)
    store(output + i, load(input + i) * factor * load(weight + i));
  for (; i < size; ++i) output[i] = input[i] * factor * weight[i];
}

// Turns number i and number i + half of a head by the angle i of its position.
inline void rotate(float* head, const float* cosines, const float* sines, int half) {
  for (int i = 0; i < half; ++i) {
    float first = head[i], second = head[i + half];
    head[i] = first * cosines[i] - second * sines[i];
    head[i + half] = second * cosines[i] + first * sines[i];
  }
}

inline void embed(const Model& model, int token, float* output) {
  long from = static_cast<long>(token) * model.hidden;
  for (int i = 0; i < model.hidden; ++i) {
    float value = model.embedding_kind == BFLOAT16
                      ? widen_one(static_cast<const uint16_t*>(model.embedding)[from + i])
                      : static_cast<const float*>(model.embedding)[from + i];
    output[i] = value * model.embedding_scale;
  }
}

}  // namespace ISA
