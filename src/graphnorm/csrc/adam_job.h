/* One step of Adam: its arrays. */
#pragma once
#include <stdint.h>

typedef struct {
  int64_t entries;
  float *parameters, *first, *second; /* (entries): changed in place */
  const float *gradient;              /* (entries) */
  const int32_t *owner;               /* (entries): the member of each, in runs */
  const float *rate, *root, *decay;   /* (members) */
  const uint8_t *active;              /* (members): whether it takes the step */
  float first_share, second_share, epsilon; /* 1 - beta1, 1 - beta2 */
} adam_job;
