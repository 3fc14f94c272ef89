/* Inputs of a sweep that are named: --input. */
#ifndef TUNECTL_INPUT_H
#define TUNECTL_INPUT_H

#include "tunectl.h"

/* Sets the request's "shapes" and "inputs" where there are --input options. */
int pass_inputs(
    struct tunectl *ctl, const struct args *args, json_t *request, struct tune_error *err);

#endif
