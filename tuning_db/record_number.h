/* Numbers as text, in the fewest digits that read back to the same value: 0.1, 63213.4375, 1e-7.
 * The same bytes on every machine and in every locale. Pure. */
#ifndef TUNE_RECORD_NUMBER_H
#define TUNE_RECORD_NUMBER_H

#include <stddef.h>

#define NUMBER_TEXT_BYTES 40

/* Writes a finite number >= 0 as JSON has it and returns its length. Whole numbers below 2^53 are
 * exact; from there, and below 1e-5, there is an exponent, so that no reader takes them for
 * integers. */
size_t number_text(double value, char text[NUMBER_TEXT_BYTES]);
/* The same of a float: the digits tell it from the floats beside it. They are meant to be read as a
 * double and then rounded to a float. */
size_t number_text_float(float value, char text[NUMBER_TEXT_BYTES]);

#endif
