/* The messages between tunerd and tune-worker, on the worker's descriptor 3 (a socketpair).
 *
 * One JSON value per line (client/proto.h). The worker speaks first: a hello. Then it answers one
 * request at a time; the daemon sends the next one only after the answer, or kills it. A message
 * that breaks these rules counts as the worker's death (outcome crashed).
 *
 * Command line:  tune-worker compile|bench [--device ORDINAL_OR_UUID] [--cuda DIR]
 *                tune-worker devices [--cuda DIR]    a devices hello on the pipe, then exit
 *                tune-worker load --device UUID,... [--cuda DIR]
 *                                                    a load hello on the pipe, then exit
 *                tune-worker trace [--cuda DIR]      DIR: the emulator's folder
 *                tune-worker probe [--cuda DIR]      one line of JSON on standard output, exit
 *
 * compile hello: {"hello":"compile","pipe":1,"pid","nvrtc":"13.0","nvrtc_path","include":DIR|null,
 *                 "archs":[75,80,...],"emulated":bool}
 *                or {"hello":"compile","pipe":1,"error":"what to do"}, and the process ends.
 *                It comes after a self-test compile, so a missing companion library shows.
 * devices hello: {"hello":"devices","pipe":1,"devices":[{plugins/device.h}, ...]} in the driver's
 *                order (as CUDA_VISIBLE_DEVICES leaves them), or with "error" and "code"; makes no
 *                context.
 * load hello:    {"hello":"load","pipe":1,"devices":[{"uuid","busy_percent","memory_percent"}]}
 *                with the devices that NVML knows, perhaps none.
 *
 * bench hello:   {"hello":"bench","pipe":1,"pid","device":{plugins/device.h},"nvml":bool}
 *                or with "error", "code" (driver's number, 0: none) and "busy": true when trying
 *                again later may help; then the process ends.
 *
 * trace hello:   {"hello":"trace","pipe":1,"pid"} or with "error", and the process ends.
 *
 * Requests carry "id"; answers repeat it.
 *
 * {"id","op":"compile","name":"gemm.cu","source","headers":[{"name","text"}],"options":["-DBM=64"],
 *  "arch":"sm_90"|"sm_90a"|"compute_90"|"cpu","entries":["gemm"],"cache":bool}
 *   entries may be empty: kernels with C linkage are in the image all the same (harness.cu).
 *   cache false: NVRTC's own disk cache is switched off.
 *   -> {"id","ok":true,"image":BASE64,"is_ptx":bool,"log","log_bytes":N (before the cut at 64 KiB),
 *       "names":{"entry":"lowered"},"resources":{"lowered":{"registers","spill_bytes",
 *       "static_shared_bytes","stack_bytes"}},"compile_ms":x}
 *   -> {"id","ok":false,"error":"one line: the first error","log","log_bytes","static_assert":bool,
 *       "compile_ms"}
 *
 * {"id","op":"setup","session":N,"harness":BASE64 (image of kernels_src/harness.cu),
 *  "reference_image":BASE64,"reference_names":{...},"buffers":[plan_buffers],
 *  "reference":plan_reference,"seed":N,"hooks":PATH|null,
 *  "call":{"kernel","dtype","dims":{"M":1024}} (needed with hooks only),
 *  "input":TEXT (the matrix that buffers with "matrix" are filled from, plugins/sparse.h; without
 *  it one is made from that description),"input_reader":UID (who must be allowed to read its file)}
 *   Allocates and fills inputs (seed), runs the reference, keeps both; ends any earlier session.
 *   -> {"id","ok":true,"setup_ms"}
 *   -> {"id","ok":false,"setup_ms", and the fields of a failure}
 *
 * {"id","op":"bench","session":N,"image":BASE64,"names":{...},"buffers":[plan_buffers with this
 *  configuration's scratch],"launches":[plan_launches],"mode":"cold"|"warm",
 *  "method":"auto"|"event"|"graph","verify":bool,"deadline_ms":N (one call of the kernel),
 *  "sample_budget_ms":N,"max_samples":N,"stop_above_ns":x|null}
 *   stop_above_ns: once the interval's lower bound is above it, sampling stops early.
 *   -> {"id","outcome":"ok","sticky":false,"method","samples_ns":[...],"median_ns",
 *       "interval_ns":[lo,hi],"stopped_early":bool,"registers","spill_bytes","static_shared_bytes",
 *       "dynamic_shared_bytes","max_error":x,"clocks":{"sm_mhz","memory_mhz","temperature_c",
 *       "throttle_reasons"}}
 *   -> {"id", the fields of a failure, and the resources and max_error as far as they are known}
 *   spill_bytes here is the driver's local memory per thread (stack frame and spills); the compile
 *   answer has the spills alone. max_error is a share of what the check allows: 1e300 is infinite.
 *
 * {"id","op":"confirm","session":N,"mode","method":"event"|"graph","deadline_ms","budget_ms",
 *  "seed","max_samples","verify":bool,
 *  "candidates":[{"image","names","buffers","launches"}] (1 to 32)}
 *   Measures the candidates interleaved, in an order shuffled anew each round (seed); with verify
 *   each is compared with the reference first.
 *   -> {"id","outcome":"ok","results":[{"samples_ns","median_ns","interval_ns",
 *     the resources, "max_error"}],"clocks"}
 *   -> {"id","candidate":INDEX, and the fields of a failure}
 *
 * {"id","op":"limits","image":BASE64 (image of kernels_src/limits.cu),"names":{...}}
 *   What the device reaches, measured: bytes per second of a copy within its memory (read plus
 *   written) or of reading alone, the faster; and f32 multiply-adds that nothing else slows.
 *   Needs no session and leaves one as it is.
 *   -> {"id","outcome":"ok","dram_bytes_per_s":x,"flops_f32":x,"clocks"}
 *   -> {"id", the fields of a failure}
 *
 * {"id","op":"trace","compile":{the fields of a compile request but id, op and arch},
 *  "harness":{the same, of kernels_src/harness.cu},"buffers":[plan_buffers],
 *  "launches":[plan_launches],"widths":[...] (tests/emulator/trace.h),"seed":N,"blocks":N,
 *  "hooks":PATH|null,"call":{as of setup},"deadline_ms":N (for all of it; 30,000)}
 *   Runs some blocks of the kernel on the emulator and tells what they access. One request per
 *   process.
 *   -> {"id","ok":true,"launches":[tests/emulator/trace.h],"trace_ms"}
 *   -> {"id","ok":false,"error":"sentence","log"}
 *
 * The fields of a failure: "outcome":WORD (tuning_db/record.h), "error":"sentence", "code" (the
 * driver's number, 0: not from the driver), "blame":"candidate"|"device", "retry": true when the
 * same request may succeed in a fresh worker, "sticky": true when this process ends after the
 * answer (the CUDA context is lost, or a candidate wrote where it must not). With blame "device"
 * nothing is to be recorded about the candidate. The table by code is cuda_errors.c.
 *
 * Watchdog: each blocking driver step of setup, bench, confirm and limits has a deadline
 * (deadline_ms for a launch and what waits on it; 120 s for the reference; 10 s for loads,
 * allocations and each run of limits). Past it
 * the worker answers with outcome timeout and sticky true from its watchdog thread and ends by
 * SIGKILL on itself. While a request runs the daemon has a wider deadline of its own as second
 * line. Waiting for the GPU lock (another tunerd is measuring) comes first and counts against none
 * of these: the worker says {"id","event":"waiting"} at once, and {"id","event":"locked"} when it
 * has the lock, where the daemon's deadline begins. */
#ifndef TUNE_WORKER_PIPE_H
#define TUNE_WORKER_PIPE_H

#define PIPE_VERSION 1
#define PIPE_DESCRIPTOR 3
#define PIPE_LOG_LIMIT_BYTES 65536

#endif
