/* code_operands.c - what the operands of a kernel with coded weights must be like. */
#include "code_operands.h"

bool mllm_code_format_of(int64_t format, uint32_t *bits, bool *is_signed) {
  if (format < MLLM_CODES_I8 || format > MLLM_CODES_U2) return false;
  *bits = 8U >> (uint32_t)(format / 2);
  *is_signed = format % 2 == 0;
  return true;
}

/* [panels, bytes of count codes, 16]: signed bytes where a byte is a signed code. */
static bool is_panels(const mllm_view *view, size_t panels, size_t count, uint32_t bits,
                      bool is_signed) {
  const size_t each = 8 / bits;
  const uint32_t dtype = bits == 8 && is_signed ? MLLM_I8 : MLLM_U8;
  return view->dtype == dtype && view->rank == 3 && mllm_extent(view, 0) == panels &&
         mllm_extent(view, 1) == count / each + (count % each != 0) && view->dims[2] == MLLM_PANEL;
}

/* [panels, groups of count codes, 16, 4] */
static bool is_quads(const mllm_view *view, size_t panels, size_t count, uint32_t bits,
                     bool is_signed) {
  const size_t each = (size_t)MLLM_QUAD * 8 / bits;
  const uint32_t dtype = bits == 8 && is_signed ? MLLM_I8 : MLLM_U8;
  return view->dtype == dtype && view->rank == 4 && mllm_extent(view, 0) == panels &&
         mllm_extent(view, 1) == count / each + (count % each != 0) &&
         view->dims[2] == MLLM_PANEL && view->dims[3] == MLLM_QUAD;
}

static bool read_scale(const mllm_view *scale, size_t panels, mllm_codes *codes) {
  codes->scale = scale->data;
  codes->scale_is_half = scale->dtype == MLLM_F16;
  codes->one_scale = scale->rank == 0;
  if (scale->dtype != MLLM_F32 && scale->dtype != MLLM_F16) return false;
  return codes->one_scale ||
         (scale->rank == 3 && mllm_extent(scale, 0) == panels &&
          mllm_extent(scale, 1) == codes->blocks && scale->dims[2] == MLLM_PANEL);
}

static bool read_zero(const mllm_view *zero, size_t panels, int64_t format, mllm_codes *codes) {
  if (!mllm_code_format_of(format, &codes->zero_bits, &codes->zero_is_signed)) return false;
  if (!mllm_is_present(zero)) return true;
  codes->zero = zero->data;
  codes->one_zero = zero->rank == 0;
  if (!codes->one_zero) {
    return is_panels(zero, panels, codes->blocks, codes->zero_bits, codes->zero_is_signed);
  }
  return codes->zero_bits == 8 && zero->dtype == (codes->zero_is_signed ? MLLM_I8 : MLLM_U8);
}

bool mllm_codes_make(const mllm_call *call, uint32_t first, size_t n, size_t depth,
                     const mllm_code_params *params, mllm_codes *codes) {
  memset(codes, 0, sizeof *codes);
  if (!mllm_code_format_of(params->format, &codes->bits, &codes->is_signed)) return false;
  if (params->block_size < 0) return false;
  const size_t panels = n / MLLM_PANEL + (n % MLLM_PANEL != 0);
  codes->data = mllm_input(call, first)->data;
  codes->depth = depth;
  codes->block = params->block_size > 0 ? (size_t)params->block_size : depth > 0 ? depth : 1;
  codes->blocks =
      params->block_size > 0 ? depth / codes->block + (depth % codes->block != 0) : 1;
  return is_quads(mllm_input(call, first), panels, depth, codes->bits, codes->is_signed) &&
         read_scale(mllm_input(call, first + 1), panels, codes) &&
         read_zero(mllm_input(call, first + 2), panels, params->zero_format, codes);
}

void mllm_widen(int32_t *y, const mllm_view *x, size_t begin, size_t n, int32_t zero) {
  if (x->dtype == MLLM_I8) {
    const int8_t *codes = (const int8_t *)x->data + begin;
    for (size_t i = 0; i < n; i++) y[i] = codes[i] - zero;
    return;
  }
  const uint8_t *codes = (const uint8_t *)x->data + begin;
  for (size_t i = 0; i < n; i++) y[i] = codes[i] - zero;
}
