// SPDX-License-Identifier: Apache-2.0
#pragma once

struct Pool;

Pool* pool_open(int threads);  // the caller counts as one; throws where threads cannot be had
void pool_close(Pool* pool);
