"""Reads quantised weights with the real bitsandbytes, and writes what it would: safetensors FROM and TO, whose *.values are dequantised."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from real_bitsandbytes import F, Linear8bitLt  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

given, made = load_file(sys.argv[1]), {}
for name in given:
    if ".quant_state." in name:
        weight = name.split(".quant_state.")[0]
        state = F.QuantState.from_dict(
            {key[len(weight) + 1:]: value for key, value in given.items() if key.startswith(weight + ".")}, device="cpu")
        made[weight] = given[weight]
        for key, value in state.as_dict(packed=True).items():
            made[f"{weight}.{key}"] = value
        made[weight + ".values"] = F.dequantize_4bit(given[weight], state)
    elif name.endswith(".SCB"):
        module = name[: -len(".SCB")]
        rows, columns = given[module + ".weight"].shape
        linear = Linear8bitLt(columns, rows, bias=False, has_fp16_weights=False).to("cpu")
        linear.load_state_dict({key: given[f"{module}.{key}"] for key in ("weight", "SCB", "weight_format")})
        for key, value in linear.state_dict().items():
            made[f"{module}.{key}"] = value
        made[module + ".weight.values"] = F.int8_vectorwise_dequant(linear.weight.data, linear.weight.SCB)
save_file({name: tensor.contiguous().clone() for name, tensor in made.items()}, sys.argv[2])
