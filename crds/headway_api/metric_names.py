# SPDX-License-Identifier: Apache-2.0
"""The server's metrics by their exposition names, so that exporter and readers cannot drift.

Labels follow each name; all of them have `model` as well, the name that clients send. Prometheus
adds `namespace`, `pod` and `pool` when it scrapes a pod.
"""

SLO_REQUESTS_TOTAL = "headway_slo_requests_total"  # workload, objective, met
REQUESTS_TOTAL = "headway_requests_total"  # workload, outcome
PROMPT_TOKENS_TOTAL = "headway_prompt_tokens_total"  # workload
GENERATION_TOKENS_TOTAL = "headway_generation_tokens_total"  # workload
TOKENS_TOTAL = "headway_tokens_total"  # workload

TTFT_SECONDS = "headway_ttft_seconds"  # workload
TPOT_SECONDS = "headway_tpot_seconds"  # workload
ITL_SECONDS = "headway_itl_seconds"  # workload
QUEUE_TIME_SECONDS = "headway_queue_time_seconds"  # workload
E2E_SECONDS = "headway_e2e_seconds"  # workload
PROMPT_LENGTH_TOKENS = "headway_prompt_length_tokens"  # workload
OUTPUT_LENGTH_TOKENS = "headway_output_length_tokens"  # workload

RUNNING_REQUESTS = "headway_running_requests"  # workload
WAITING_REQUESTS = "headway_waiting_requests"  # workload
OLDEST_WAITING_SECONDS = "headway_oldest_waiting_seconds"  # workload
BATCH_TOKENS = "headway_batch_tokens"  # workload
RESERVED_TOKENS = "headway_reserved_tokens"  # workload
KNOB_VALUE = "headway_knob_value"  # workload, knob
ADMISSION_BLOCKED_TOTAL = "headway_admission_blocked_total"  # workload, reason
PREEMPTIONS_TOTAL = "headway_preemptions_total"  # workload
CANCELLED_TOKENS_TOTAL = "headway_cancelled_tokens_total"  # workload

KV_TOKENS = "headway_kv_tokens"  # state
KV_EVICTIONS_TOTAL = "headway_kv_evictions_total"
PREFIX_CACHE_QUERIED_TOKENS_TOTAL = "headway_prefix_cache_queried_tokens_total"
PREFIX_CACHE_HIT_TOKENS_TOTAL = "headway_prefix_cache_hit_tokens_total"
OUT_OF_MEMORY_TOTAL = "headway_out_of_memory_total"
STEP_PROMPT_TOKENS = "headway_step_prompt_tokens"
STEPS_TOTAL = "headway_steps_total"  # kind
STEP_SECONDS_TOTAL = "headway_step_seconds_total"  # kind
STEP_TOKENS_TOTAL = "headway_step_tokens_total"  # kind
ITERATION_SECONDS = "headway_iteration_seconds"
LENGTH_PREDICTIONS_TOTAL = "headway_length_predictions_total"  # predictor, bin

RUNTIME_CONFIG_INFO = "headway_runtime_config_info"  # revision
RUNTIME_CONFIG_REJECTED = "headway_runtime_config_rejected"  # revision, field
