/* The op fault as C: Meson takes no .cu as a source of C. */
#include "tests/gpu/fault.cu"
