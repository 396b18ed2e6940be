/* The op palette as C: Meson takes no .cu as a source of C. */
#include "tests/operands/palette.cu"
