/* Links two engines by their headers, in strict C. */
#include <stdio.h>

#include "left.h"
#include "right.h"

int main(void) {
  const bolt_engine_v1* engines[2];
  int i;
  engines[0] = left_bolt_v1();
  engines[1] = right_bolt_v1();
  for (i = 0; i < 2; ++i) {
    bolt_tensor tensor;
    if (engines[i]->size != sizeof(bolt_engine_v1) || engines[i]->input(engines[i]->batches[0], 0, &tensor) != BOLT_OK) return 1;
    printf("%s %ld\n", engines[i]->name, (long)tensor.shape[2]);
  }
  return 0;
}
