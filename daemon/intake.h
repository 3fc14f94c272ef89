/* Whether a row that was measured elsewhere may come in: what imports and the fleet have in common.
 *
 * The form of a row is judged by record_line.h; here it meets what this machine knows. Nothing of a
 * row is ever executed: a configuration is a point of a manifest's space or it is refused.
 *
 * Create and destroy on the loop thread; judge on any one thread. */
#ifndef TUNE_INTAKE_H
#define TUNE_INTAKE_H

#include "plugins/registry.h"
#include "tuning_db/record.h"

struct intake;

enum intake_verdict {
    INTAKE_TAKEN,   /* of a kernel as it is here */
    INTAKE_ASIDE,   /* kept, but of a kernel, or a text of it, that is not here: serves as nearest at
                       most, and is judged when it is asked for */
    INTAKE_REFUSED, /* not kept; the reason says why */
};

/* The kernels as they are now (references are taken). New; never NULL. */
struct intake *intake_create(const struct registry *registry);
void intake_destroy(struct intake *intake);

/* reason: a sentence for INTAKE_ASIDE and INTAKE_REFUSED. Refused are: a configuration that is not a
 * point of the kernel's space (absent, undeclared or unknown parameters, values out of their list,
 * a constraint broken, for constraints that need no device), a shape or dtype that the kernel
 * does not have, a time under what any GPU can do (INTAKE_MIN_NS, INTAKE_MAX_FLOPS_PER_S,
 * INTAKE_MAX_BYTES_PER_S; the emulated device excepted). */
enum intake_verdict intake_judge(
    struct intake *intake, const struct sample *sample, struct tune_error *reason);

#define INTAKE_MIN_NS RECORD_MIN_NS
#define INTAKE_MAX_FLOPS_PER_S 1e17    /* ten times the densest card of today, sparsity included */
#define INTAKE_MAX_BYTES_PER_S 1e15

#endif
