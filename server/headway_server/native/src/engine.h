// SPDX-License-Identifier: Apache-2.0
// What the kernels of every instruction set share: the threads, the memory of a step, and the
// table by which the library calls them.
#pragma once

#include <cstddef>

#include "abi.h"

struct Pool;
using Task = void (*)(void* context, int index, int worker);

int pool_threads(const Pool* pool);
// Runs task(context, 0 .. count - 1, worker) on the caller and on whichever workers are awake.
void pool_run(Pool* pool, Task task, void* context, int count);

struct Engine {
  Pool* pool;
  const struct Kernels* kernels;
  char* memory;
  size_t capacity;
};

// Memory for one step, aligned to 64 bytes; null if there is not enough. The last one is lost.
char* engine_reserve(Engine* engine, size_t bytes);

struct Kernels {
  const char* name;
  int (*forward)(Engine*, const Model*, const Batch*);
  int (*multiply)(Engine*, const Matrix*, const float* input, int rows, float* output);
  int (*attend)(Engine*, const Model*, int layer, const Batch*, float* qkv, float* output);
  void (*normalise)(const float* input, const float* weight, int size, float epsilon, float* output);
};
