/* Matrix Market files: any bytes give a sound matrix or a sentence, and take no more memory than
 * they are worth. */
#include "plugins/matrix_market.h"
#include "target.h"

#include <stdlib.h>

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct sparse_matrix matrix;
    struct sparse_description description;
    struct tune_error err = {.code = TUNE_OK};
    FILE *stream = count > 0 ? fmemopen((void *)bytes, count, "r") : NULL;
    if (stream == NULL)
        return 0;
    if (matrix_market_read_stream(stream, "fuzz", &matrix, &err) == 0) {
        check((size_t)matrix.nonzeros <= count);
        check(sparse_describe(&matrix, &description, &err) == 0);
    } else {
        check(err.text[0] != '\0' && matrix.offsets == NULL);
    }
    sparse_finish(&matrix);
    fclose(stream);
    return 0;
}
