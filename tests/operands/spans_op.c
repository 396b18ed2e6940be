/* The op spans as C: Meson takes no .cu as a source of C. */
#include "tests/operands/spans.cu"
