/* The messages between tunerd and tune-worker, on the worker's descriptor 3 (a socketpair).
 *
 * One JSON value per line (client/proto.h). The worker speaks first: a hello. Then it answers one
 * request at a time; the daemon sends the next one only after the answer, or kills it. A message
 * that breaks these rules counts as the worker's death (outcome crashed).
 *
 * Command line:  tune-worker compile|bench [--device ORDINAL_OR_UUID] [--cuda DIR]
 *                tune-worker devices        a devices hello on the pipe, then exit
 *                tune-worker probe          one line of JSON on standard output for `doctor`, exit
 *
 * compile hello: {"hello":"compile","pipe":1,"pid","nvrtc":"13.0","nvrtc_path","include":DIR|null,
 *                 "archs":[75,80,...],"emulated":bool}
 *                or {"hello":"compile","pipe":1,"error":"sentence what to do"} and the process
 * ends. The hello comes after a self-test compile, so a missing companion library shows. devices
 * hello: {"hello":"devices","pipe":1,"devices":[{plugins/device.h}, ...]} in the driver's order (as
 *                CUDA_VISIBLE_DEVICES leaves them), or with "error"; makes no context.
 * bench hello:   {"hello":"bench","pipe":1,"pid","device":{plugins/device.h},"nvml":bool}
 *                or with "error", "code" (driver's number, 0: none) and "busy": true when trying
 * again later may help.
 *
 * Requests carry "id"; answers repeat it.
 *
 * {"id","op":"compile","name":"gemm.cu","source","headers":[{"name","text"}],"options":["-DBM=64"],
 *  "arch":"sm_90"|"sm_90a"|"compute_90"|"cpu","entries":["gemm"],"cache":bool}
 *   cache false: NVRTC's own disk cache is switched off.
 *   -> {"id","ok":true,"image":BASE64,"is_ptx":bool,"log","log_bytes":N (before the cut at 64 KiB),
 *       "names":{"entry":"lowered"},"resources":{"lowered":{"registers","spill_bytes",
 *       "static_shared_bytes","stack_bytes"}},"compile_ms":x}
 *   -> {"id","ok":false,"error":"one line: the first error","log","log_bytes","static_assert":bool,
 *       "compile_ms"}
 *
 * {"id","op":"setup","session":N,"harness":BASE64 (image of kernels_src/harness.cu),
 *  "reference_image":BASE64,"reference_names":{...},"buffers":[plan_buffers],
 *  "reference":plan_reference,"seed":N,"hooks":PATH|null}
 *   Allocates and fills inputs (seed), runs the reference, keeps both. Replaces any earlier
 * session.
 *   -> {"id","ok":true,"setup_ms"} | {"id","ok":false,"outcome":WORD,"error":"sentence"}
 *
 * {"id","op":"bench","session":N,"image":BASE64,"names":{...},"buffers":[plan_buffers with this
 *  configuration's scratch],"launches":[plan_launches],"mode":"cold"|"warm",
 *  "method":"auto"|"event"|"graph","verify":bool,"deadline_ms":N (one call of the kernel),
 *  "sample_budget_ms":N,"max_samples":N,"stop_above_ns":x|null}
 *   stop_above_ns: once the interval's lower bound is above it, sampling stops early.
 *   -> {"id","outcome":WORD,"error":"sentence" (failures),"method","samples_ns":[...],"median_ns",
 *       "interval_ns":[lo,hi],"stopped_early":bool,"registers","spill_bytes","static_shared_bytes",
 *       "dynamic_shared_bytes","max_error":x,"clocks":{"sm_mhz","memory_mhz","temperature_c",
 *       "throttle_reasons"},"sticky":bool}
 *   sticky true: the CUDA context is lost and the process ends after the answer.
 *
 * {"id","op":"confirm","session":N,"mode","method","deadline_ms","budget_ms","seed",
 *  "candidates":[{"image","names","buffers","launches"}]}
 *   Measures the candidates interleaved, in an order shuffled anew each round (seed).
 *   -> {"id","outcome":"ok","results":[{"samples_ns","median_ns","interval_ns"}],"clocks"}
 *   -> {"id","outcome":WORD,"error","candidate":INDEX,"sticky"}
 *
 * Watchdog: each blocking driver step of bench and confirm has a deadline (deadline_ms for a launch
 * and what waits on it; 10 s for loads and allocations). Past it the worker answers
 * {"id","outcome":"timeout","error":"...","sticky":true} from its watchdog thread and ends by
 * SIGKILL on itself. While a request runs the daemon has a wider deadline of its own as second
 * line. */
#ifndef TUNE_WORKER_PIPE_H
#define TUNE_WORKER_PIPE_H

#define PIPE_VERSION 1
#define PIPE_DESCRIPTOR 3
#define PIPE_LOG_LIMIT_BYTES 65536

#endif
