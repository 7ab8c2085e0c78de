"""What the real bitsandbytes makes of weights and rows, on the CPU: safetensors FROM (weights N.w, rows N.x, biases N.b), safetensors TO."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from real_bitsandbytes import F, Linear8bitLt, torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

torch.set_num_threads(1)
given, made = load_file(sys.argv[1]), {}


def add(name, tensor):
    made[name] = tensor.contiguous().clone()


for number in sorted({name.split(".")[0] for name in given}):
    weights = given[number + ".w"]
    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            name = f"{number}.{kind}{'.nested' if nested else ''}"
            codes, state = F.quantize_4bit(weights, quant_type=kind, compress_statistics=nested)
            add(name + ".codes", codes)
            add(name + ".absmax", state.absmax)
            add(name + ".code_map", state.code)
            if nested:
                add(name + ".nested_absmax", state.state2.absmax)
                add(name + ".nested_map", state.state2.code)
                add(name + ".nested_offset", state.offset.view(1))
            for type_name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)):
                state.dtype = dtype
                add(f"{name}.values.{type_name}", F.dequantize_4bit(codes, state))
    codes, scales, _ = F.int8_vectorwise_quant(weights.half())
    add(number + ".int8.codes", codes)
    add(number + ".int8.absmax", scales)
    add(number + ".int8.values.float32", F.int8_vectorwise_dequant(codes, scales))
    linear = Linear8bitLt(weights.shape[1], weights.shape[0], has_fp16_weights=False, threshold=6.0)
    linear.weight.data, linear.bias.data = weights.half(), given[number + ".b"]
    linear = linear.to("cpu")
    rows = given[number + ".x"].half()
    with torch.no_grad():  # on a CPU it multiplies by dequantised weights
        add(number + ".weight_product", linear(rows))
    row_codes, statistics, columns = F.int8_vectorwise_quant(rows, threshold=6.0)
    product, _ = torch.ops.bitsandbytes.int8_mixed_scaled_mm(rows, row_codes, codes, statistics, scales, columns, given[number + ".b"])
    add(number + ".product", product)

save_file(made, sys.argv[2])
