// RUN: mllm-opt %s -p lift-masks | filecheck %s

// CHECK-LABEL: func.func @reads_a_causal_mask
// CHECK: mllm.attention %q, %k, %v {heads = 4 : i64, kv_heads = 4 : i64, scale = 5.000000e-01 : f64, causal = true}
// CHECK-NEXT: func.return
func.func @reads_a_causal_mask(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare le %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %s4, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @reads_a_causal_mask_of_what_is_excluded
// CHECK: mllm.attention %q, %k, %v {{{.*}}causal = true}
func.func @reads_a_causal_mask_of_what_is_excluded(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare gt %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %s4, %low, %zero : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @reads_queries_on_the_left
// CHECK: mllm.attention %q, %k, %v {{{.*}}causal = true}
func.func @reads_queries_on_the_left(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare ge %i, %j : (tensor<3x1xi64>, tensor<1x5xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %s4, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @reads_a_causal_mask_and_a_key_mask
// CHECK: mllm.attention %q, %k, %v key_mask(%m : tensor<1x5xi64>) {{{.*}}causal = true}
func.func @reads_a_causal_mask_and_a_key_mask(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>, %m: tensor<1x5xi64>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare le %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %m1 = mllm.cast %m : (tensor<1x5xi64>) -> tensor<1x5xi1>
  %m4 = mllm.reshape %m1 : (tensor<1x5xi1>) -> tensor<1x1x1x5xi1>
  %both = mllm.binary and %s4, %m4 : (tensor<1x1x3x5xi1>, tensor<1x1x1x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %both, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @reads_one_minus_a_key_mask
// CHECK: mllm.attention %q, %k, %v key_mask(%m : tensor<1x5xi64>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 5.000000e-01 : f64} :
func.func @reads_one_minus_a_key_mask(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>, %m: tensor<1x5xi64>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %m4 = mllm.reshape %m : (tensor<1x5xi64>) -> tensor<1x1x1x5xi64>
  %mf = mllm.cast %m4 : (tensor<1x1x1x5xi64>) -> tensor<1x1x1x5xf32>
  %n = mllm.binary sub %one, %mf : (tensor<f32>, tensor<1x1x1x5xf32>) -> tensor<1x1x1x5xf32>
  %p = mllm.binary mul %n, %low : (tensor<1x1x1x5xf32>, tensor<f32>) -> tensor<1x1x1x5xf32>
  %bias = mllm.broadcast %p : (tensor<1x1x1x5xf32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @reads_a_window
// CHECK: mllm.attention %q, %k, %v {{{.*}}causal = true, window = 2 : i64}
func.func @reads_a_window(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare le %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %w = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %w1 = mllm.reshape %w : (tensor<3xi64>) -> tensor<3x1xi64>
  %near = mllm.compare gt %j, %w1 : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %n4 = mllm.reshape %near : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %both = mllm.binary and %s4, %n4 : (tensor<1x1x3x5xi1>, tensor<1x1x3x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %both, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @keeps_a_mask_that_is_one_token_off
// CHECK: mllm.attention %q, %k, %v bias(
func.func @keeps_a_mask_that_is_one_token_off(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"1">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare le %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %s4, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @keeps_a_bias_that_is_no_mask
// CHECK: mllm.attention %q, %k, %v bias(%b
func.func @keeps_a_bias_that_is_no_mask(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>, %b: tensor<1x4x3x5xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %y = mllm.attention %q, %k, %v bias(%b : tensor<1x4x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @keeps_a_penalty_that_excludes_nothing
// CHECK: mllm.attention %q, %k, %v bias(
func.func @keeps_a_penalty_that_excludes_nothing(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %soft = mllm.constant dense<-2.0> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare le %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %s4, %zero, %soft : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @keeps_a_mask_of_queries_and_keys
// CHECK-NOT: key_mask
// CHECK: bias(
func.func @keeps_a_mask_of_queries_and_keys(%q: tensor<2x3x32xf32>, %k: tensor<2x5x32xf32>, %m: tensor<3x5xi1>) -> tensor<2x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %lowest = mllm.constant dense<-3.40282347E+38> : tensor<f32>
  %0 = mllm.select %m, %zero, %lowest : (tensor<3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<3x5xf32>
  %bias = mllm.reshape %0 : (tensor<3x5xf32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %k bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<2x3x32xf32>, tensor<2x5x32xf32>, tensor<2x5x32xf32>) -> tensor<2x3x32xf32>
  func.return %y : tensor<2x3x32xf32>
}

// CHECK-LABEL: func.func @takes_a_mask_out_of_a_bias
// CHECK: mllm.attention %q, %k, %v bias(%b : tensor<1x4x3x5xf32>) {{{.*}}causal = true}
func.func @takes_a_mask_out_of_a_bias(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>, %b: tensor<1x4x3x5xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"2">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare le %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %mask = mllm.select %s4, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %both = mllm.binary add %b, %mask : (tensor<1x4x3x5xf32>, tensor<1x1x3x5xf32>) -> tensor<1x4x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%both : tensor<1x4x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @drops_a_bias_of_zeros
// CHECK: mllm.attention %q, %k, %v {heads
func.func @drops_a_bias_of_zeros(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %bias = mllm.broadcast %zero : (tensor<f32>) -> tensor<1x4x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x4x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @reads_padding_written_over_a_causal_bias
// CHECK: mllm.attention %q, %q, %q key_mask(%m : tensor<2x3xi64>) {{{.*}}causal = true}
func.func @reads_padding_written_over_a_causal_bias(%q: tensor<2x3x32xf32>, %m: tensor<2x3xi64>) -> tensor<2x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %1 = mllm.iota {start = #mllm.dims<"1">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<3xi64>) -> tensor<1x3xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare lt %j, %i : (tensor<1x3xi64>, tensor<3x1xi64>) -> tensor<3x3xi1>
  %causal = mllm.select %seen, %zero, %low : (tensor<3x3xi1>, tensor<f32>, tensor<f32>) -> tensor<3x3xf32>
  %c4 = mllm.reshape %causal : (tensor<3x3xf32>) -> tensor<1x1x3x3xf32>
  %m4 = mllm.reshape %m : (tensor<2x3xi64>) -> tensor<2x1x1x3xi64>
  %kept = mllm.cast %m4 : (tensor<2x1x1x3xi64>) -> tensor<2x1x1x3xf32>
  %wide = mllm.broadcast %kept : (tensor<2x1x1x3xf32>) -> tensor<2x1x3x3xf32>
  %absent = mllm.binary sub %one, %wide : (tensor<f32>, tensor<2x1x3x3xf32>) -> tensor<2x1x3x3xf32>
  %hidden = mllm.cast %absent : (tensor<2x1x3x3xf32>) -> tensor<2x1x3x3xi1>
  %padding = mllm.select %hidden, %low, %absent : (tensor<2x1x3x3xi1>, tensor<f32>, tensor<2x1x3x3xf32>) -> tensor<2x1x3x3xf32>
  %lost = mllm.cast %padding : (tensor<2x1x3x3xf32>) -> tensor<2x1x3x3xi1>
  %bias = mllm.select %lost, %low, %c4 : (tensor<2x1x3x3xi1>, tensor<f32>, tensor<1x1x3x3xf32>) -> tensor<2x1x3x3xf32>
  %y = mllm.attention %q, %q, %q bias(%bias : tensor<2x1x3x3xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<2x3x32xf32>, tensor<2x3x32xf32>, tensor<2x3x32xf32>) -> tensor<2x3x32xf32>
  func.return %y : tensor<2x3x32xf32>
}

// CHECK-LABEL: func.func @keeps_zeros_written_over_a_mask
// CHECK: bias(
func.func @keeps_zeros_written_over_a_mask(%q: tensor<2x3x32xf32>, %m: tensor<2x3xi64>) -> tensor<2x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %one = mllm.constant dense<1.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %m4 = mllm.reshape %m : (tensor<2x3xi64>) -> tensor<2x1x1x3xi64>
  %kept = mllm.cast %m4 : (tensor<2x1x1x3xi64>) -> tensor<2x1x1x3xf32>
  %absent = mllm.binary sub %one, %kept : (tensor<f32>, tensor<2x1x1x3xf32>) -> tensor<2x1x1x3xf32>
  %hidden = mllm.cast %absent : (tensor<2x1x1x3xf32>) -> tensor<2x1x1x3xi1>
  %none = mllm.select %hidden, %zero, %absent : (tensor<2x1x1x3xi1>, tensor<f32>, tensor<2x1x1x3xf32>) -> tensor<2x1x1x3xf32>
  %lost = mllm.cast %none : (tensor<2x1x1x3xf32>) -> tensor<2x1x1x3xi1>
  %bias = mllm.select %lost, %low, %zero : (tensor<2x1x1x3xi1>, tensor<f32>, tensor<f32>) -> tensor<2x1x1x3xf32>
  %whole = mllm.broadcast %bias : (tensor<2x1x1x3xf32>) -> tensor<2x1x3x3xf32>
  %y = mllm.attention %q, %q, %q bias(%whole : tensor<2x1x3x3xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<2x3x32xf32>, tensor<2x3x32xf32>, tensor<2x3x32xf32>) -> tensor<2x3x32xf32>
  func.return %y : tensor<2x3x32xf32>
}

// CHECK-LABEL: func.func @drops_a_mask_that_hides_nothing
// CHECK: mllm.attention %q, %q, %q {heads
// CHECK: mllm.attention %q, %q, %q bias(
func.func @drops_a_mask_that_hides_nothing(%q: tensor<1x3x32xf32>) -> (tensor<1x3x32xf32>, tensor<1x3x32xf32>) {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %all = mllm.constant dense<true> : tensor<1x1x3x1xi1>
  %some = mllm.constant dense<[[[[true], [false], [true]]]]> : tensor<1x1x3x1xi1>
  %a = mllm.broadcast %all : (tensor<1x1x3x1xi1>) -> tensor<1x1x3x3xi1>
  %s = mllm.broadcast %some : (tensor<1x1x3x1xi1>) -> tensor<1x1x3x3xi1>
  %nothing = mllm.select %a, %zero, %low : (tensor<1x1x3x3xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x3xf32>
  %row = mllm.select %s, %zero, %low : (tensor<1x1x3x3xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x3xf32>
  %y = mllm.attention %q, %q, %q bias(%nothing : tensor<1x1x3x3xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x3x32xf32>, tensor<1x3x32xf32>) -> tensor<1x3x32xf32>
  %z = mllm.attention %q, %q, %q bias(%row : tensor<1x1x3x3xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x3x32xf32>, tensor<1x3x32xf32>) -> tensor<1x3x32xf32>
  func.return %y, %z : tensor<1x3x32xf32>, tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @leaves_out_what_always_holds
// CHECK: mllm.attention %q, %k, %v key_mask(%m : tensor<1x5xi1>) {heads
func.func @leaves_out_what_always_holds(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>, %m: tensor<1x5xi1>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %none = mllm.constant dense<0> : tensor<i64>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %i = mllm.reshape %0 : (tensor<3xi64>) -> tensor<1x1x3x1xi64>
  %there = mllm.compare ge %i, %none : (tensor<1x1x3x1xi64>, tensor<i64>) -> tensor<1x1x3x1xi1>
  %keys = mllm.reshape %m : (tensor<1x5xi1>) -> tensor<1x1x1x5xi1>
  %both = mllm.binary and %there, %keys : (tensor<1x1x3x1xi1>, tensor<1x1x1x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %both, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @keeps_a_condition_on_some_queries
// CHECK: mllm.attention %q, %k, %v bias(
func.func @keeps_a_condition_on_some_queries(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %one = mllm.constant dense<1> : tensor<i64>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %i = mllm.reshape %0 : (tensor<3xi64>) -> tensor<1x1x3x1xi64>
  %some = mllm.compare ge %i, %one : (tensor<1x1x3x1xi64>, tensor<i64>) -> tensor<1x1x3x1xi1>
  %wide = mllm.broadcast %some : (tensor<1x1x3x1xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %wide, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}

// CHECK-LABEL: func.func @reads_a_window_up_to_its_first_key
// CHECK: mllm.attention %q, %k, %v {{{.*}}causal = true, window = 3 : i64}
func.func @reads_a_window_up_to_its_first_key(%q: tensor<1x3x32xf32>, %k: tensor<1x5x32xf32>, %v: tensor<1x5x32xf32>) -> tensor<1x3x32xf32> {
  %zero = mllm.constant dense<0.0> : tensor<f32>
  %low = mllm.constant dense<-3.40282347e+38> : tensor<f32>
  %0 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<5xi64>
  %1 = mllm.iota {start = #mllm.dims<"0">, step = 1 : i64} : tensor<3xi64>
  %j = mllm.reshape %0 : (tensor<5xi64>) -> tensor<1x5xi64>
  %i = mllm.reshape %1 : (tensor<3xi64>) -> tensor<3x1xi64>
  %seen = mllm.compare ge %j, %i : (tensor<1x5xi64>, tensor<3x1xi64>) -> tensor<3x5xi1>
  %s4 = mllm.reshape %seen : (tensor<3x5xi1>) -> tensor<1x1x3x5xi1>
  %bias = mllm.select %s4, %zero, %low : (tensor<1x1x3x5xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x3x5xf32>
  %y = mllm.attention %q, %k, %v bias(%bias : tensor<1x1x3x5xf32>) {heads = 4 : i64, kv_heads = 4 : i64, scale = 0.5 : f64, causal = true} : (tensor<1x3x32xf32>, tensor<1x5x32xf32>, tensor<1x5x32xf32>) -> tensor<1x3x32xf32>
  func.return %y : tensor<1x3x32xf32>
}
