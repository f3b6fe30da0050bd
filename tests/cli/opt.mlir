// RUN: mllm-opt %s | filecheck %s
// RUN: not mllm-opt %s -p 'fold-constant' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not mllm-opt %s -p 'cse{depth=1}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not mllm-opt %s --pipeline lower 2>&1 | filecheck %s --check-prefix=PIPELINE
// RUN: mllm-opt %s -p 'cse,dce' --print-ir-after-all 2>&1 | filecheck %s --check-prefix=AFTER
// RUN: not mllm-opt %s --weights tiny-lama -p 'fold-constants' 2>&1 | filecheck %s --check-prefix=WEIGHTS

// CHECK: func.func @one_addition_is_written_twice
func.func @one_addition_is_written_twice(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = mllm.binary add %x, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = mllm.binary add %x, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  %2 = mllm.binary mul %0, %1 : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  func.return %2 : tensor<2x8xf32>
}

// UNKNOWN: mllm-opt -p: error: no pass 'fold-constant' here [MLC-U004] (did you mean fold-constants?)
// OPTION: mllm-opt -p: error: {{.*}} [MLC-U004]
// PIPELINE: mllm-opt --pipeline: error: no pass 'lower' here [MLC-U004]
// AFTER: IR Dump After cse
// AFTER: mllm.binary mul %0, %0
// AFTER: IR Dump After dce
// WEIGHTS: tiny-lama: error: no file, directory or recipe of this name [MLC-U003]
