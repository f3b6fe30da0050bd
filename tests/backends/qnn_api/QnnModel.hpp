// Declarations of our own of what model.cpp uses of the SDK, only to compile it; nothing here runs.
#pragma once
#include <cstddef>
#include <cstdint>

#define QNN_API
#define VALIDATE(call, err) if ((err = (call)) != 0) return err
#define BINVARSTART(name) const_cast<void*>(static_cast<const void*>(&_binary_obj_binary_##name##_raw_start))
#define BINLEN(name) static_cast<uint32_t>(&_binary_obj_binary_##name##_raw_end - &_binary_obj_binary_##name##_raw_start)
#define QNN_OPCONFIG_VERSION_1 1

enum Qnn_TensorVersion_t { QNN_TENSOR_VERSION_1 = 1 };
enum Qnn_TensorType_t {
  QNN_TENSOR_TYPE_APP_WRITE, QNN_TENSOR_TYPE_APP_READ, QNN_TENSOR_TYPE_NATIVE, QNN_TENSOR_TYPE_STATIC
};
enum Qnn_DataFormat_t { QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER };
enum Qnn_TensorMemType_t { QNN_TENSORMEMTYPE_RAW };
enum Qnn_DataType_t {
  QNN_DATATYPE_INT_8, QNN_DATATYPE_INT_16, QNN_DATATYPE_INT_32, QNN_DATATYPE_UINT_8,
  QNN_DATATYPE_UINT_16, QNN_DATATYPE_UINT_32, QNN_DATATYPE_FLOAT_16, QNN_DATATYPE_FLOAT_32,
  QNN_DATATYPE_BOOL_8, QNN_DATATYPE_SFIXED_POINT_8, QNN_DATATYPE_SFIXED_POINT_16,
  QNN_DATATYPE_SFIXED_POINT_32, QNN_DATATYPE_UFIXED_POINT_8, QNN_DATATYPE_UFIXED_POINT_16
};
enum Qnn_Definition_t { QNN_DEFINITION_DEFINED, QNN_DEFINITION_UNDEFINED };
enum Qnn_QuantizationEncoding_t {
  QNN_QUANTIZATION_ENCODING_SCALE_OFFSET, QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET,
  QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET, QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET,
  QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION, QNN_QUANTIZATION_ENCODING_UNDEFINED
};
enum Qnn_BlockScaleStorage_t { QNN_BLOCKWISE_EXPANSION_BITWIDTH_SCALE_STORAGE_8 };
enum Qnn_ParamType_t { QNN_PARAMTYPE_SCALAR, QNN_PARAMTYPE_TENSOR };

struct Qnn_ScaleOffset_t { float scale; int32_t offset; };
struct Qnn_AxisScaleOffset_t { int32_t axis; uint32_t numScaleOffsets; Qnn_ScaleOffset_t* scaleOffset; };
struct Qnn_BwScaleOffset_t { uint32_t bitwidth; float scale; int32_t offset; };
struct Qnn_BwAxisScaleOffset_t {
  uint32_t bitwidth; int32_t axis; uint32_t numElements; float* scales; int32_t* offsets;
};
struct Qnn_BlockwiseExpansion_t {
  int32_t axis; Qnn_ScaleOffset_t* scaleOffsets; uint32_t numBlocksPerAxis;
  uint32_t blockScaleBitwidth; Qnn_BlockScaleStorage_t blockScaleStorageType;
  union { uint8_t* blocksScale8; uint16_t* blocksScale16; };
};
struct Qnn_QuantizeParams_t {
  Qnn_Definition_t encodingDefinition;
  Qnn_QuantizationEncoding_t quantizationEncoding;
  union {
    Qnn_ScaleOffset_t scaleOffsetEncoding;
    Qnn_AxisScaleOffset_t axisScaleOffsetEncoding;
    Qnn_BwScaleOffset_t bwScaleOffsetEncoding;
    Qnn_BwAxisScaleOffset_t bwAxisScaleOffsetEncoding;
    Qnn_BlockwiseExpansion_t* blockwiseExpansion;
  };
};
struct Qnn_ClientBuffer_t { void* data; uint32_t dataSize; };
struct Qnn_TensorV1_t {
  uint32_t id; const char* name; Qnn_TensorType_t type; Qnn_DataFormat_t dataFormat;
  Qnn_DataType_t dataType; Qnn_QuantizeParams_t quantizeParams; uint32_t rank;
  uint32_t* dimensions; Qnn_TensorMemType_t memType;
  union { Qnn_ClientBuffer_t clientBuf; void* memHandle; };
};
struct Qnn_Tensor_t { Qnn_TensorVersion_t version; union { Qnn_TensorV1_t v1; }; };
struct Qnn_Scalar_t {
  Qnn_DataType_t dataType;
  union { float floatValue; uint32_t uint32Value; int32_t int32Value; uint8_t bool8Value; };
};
struct Qnn_Param_t {
  Qnn_ParamType_t paramType; const char* name;
  union { Qnn_Scalar_t scalarParam; Qnn_Tensor_t tensorParam; };
};

typedef void* Qnn_BackendHandle_t;
typedef void* Qnn_ContextHandle_t;
typedef void* QnnLog_Callback_t;
typedef int QnnLog_Level_t;
struct QNN_INTERFACE_VER_TYPE { int version; };
struct QnnGraph_Config_t { int option; };

namespace qnn_wrapper_api {
enum ModelError_t { MODEL_NO_ERROR };
struct GraphConfigInfo_t { const char* graphName; const QnnGraph_Config_t** graphConfigs; };
typedef struct GraphInfo_t* GraphInfoPtr_t;
class QnnModel {
 public:
  ModelError_t initialize(const Qnn_BackendHandle_t&, const QNN_INTERFACE_VER_TYPE&,
                          const Qnn_ContextHandle_t&, const char*, bool, uint8_t = 1,
                          const QnnGraph_Config_t** = nullptr);
  ModelError_t addTensor(const char*, Qnn_Tensor_t&, bool = true);
  ModelError_t addNode(int, const char*, const char*, const char*, Qnn_Param_t*, uint32_t,
                       const char**, uint32_t, Qnn_Tensor_t*, uint32_t);
};
ModelError_t getQnnGraphConfigFromInfo(const char*, const GraphConfigInfo_t**, uint32_t,
                                       const QnnGraph_Config_t**&);
ModelError_t getGraphInfoFromModels(QnnModel*, uint32_t, GraphInfoPtr_t**);
ModelError_t freeGraphsInfo(GraphInfoPtr_t**, uint32_t);
}  // namespace qnn_wrapper_api
