/* The built-in rules, in the order in which they decide: what holds a rank up
 * for a reason of its own stands before what happens within it (a collective
 * within a checkpoint is part of the checkpoint).
 *
 * Rules about compilation name functions that enclose all of it, since tracing
 * a model runs its modules, and since compiled code runs through wrappers of
 * the same packages.  Checked against torch 2.13; names of older releases are
 * kept where they differ. */
#include "stack_categories.h"

const struct argus_stack_rule argus_stack_rules[] = {
    {ARGUS_STACK_JIT_COMPILE,
     "^torch._dynamo.convert_frame: ^torch._dynamo.symbolic_convert: ^torch._inductor.compile_fx:compile_fx "
     "^torch._inductor.async_compile:*.wait$ ^torch._inductor.async_compile:wait$ "
     "^torch._inductor.compile_worker ^torch._inductor.runtime.triton_heuristics:*precompile "
     "^torch._inductor.runtime.triton_heuristics:*autotune ^torch._inductor.autotune_process "
     "^torch._inductor.select_algorithm:*autotune ^torch._functorch.aot_autograd:aot_module "
     "^torch._export. ^torch.export. ^torch.jit._trace:trace ^torch.jit._script:script ^torch.jit.frontend: "
     "^torch.utils.cpp_extension: ^triton.compiler.compiler:compile$ ^triton.compiler.compiler:make_backend "
     "^triton.runtime.autotuner:*benchmark ^triton.runtime.autotuner:*_bench ^triton.backends. "
     "^cutlass.*:*compile ^cutlass.base_dsl.*:*generate_mlir ^flash_attn.cute*:*compile ^numba.core.compiler "
     "^tilelang.jit ^jax._src.compiler: ^jax._src.interpreters.mlir:lower"},
    {ARGUS_STACK_CHECKPOINT,
     "^torch.serialization: ^torch.distributed.checkpoint ^safetensors. ^accelerate.checkpointing: "
     "^transformers.trainer:*save_checkpoint ^transformers.trainer:*load_from_checkpoint "
     "^lightning.*checkpoint_connector: ^pytorch_lightning.*checkpoint_connector: "
     "^lightning.*:*save_checkpoint ^pytorch_lightning.*:*save_checkpoint ^deepspeed.*:*save_checkpoint "
     "^deepspeed.*:*load_checkpoint ^deepspeed.runtime.checkpoint_engine ^megatron.training.checkpointing: "
     "^megatron.core.dist_checkpointing ^orbax.checkpoint"},
    {ARGUS_STACK_COLLECTIVE_WAIT,
     "^torch.distributed.distributed_c10d:all_ ^torch.distributed.distributed_c10d:_all_ "
     "^torch.distributed.distributed_c10d:barrier ^torch.distributed.distributed_c10d:monitored_barrier "
     "^torch.distributed.distributed_c10d:broadcast ^torch.distributed.distributed_c10d:reduce "
     "^torch.distributed.distributed_c10d:_reduce ^torch.distributed.distributed_c10d:gather "
     "^torch.distributed.distributed_c10d:scatter ^torch.distributed.distributed_c10d:send "
     "^torch.distributed.distributed_c10d:recv ^torch.distributed.distributed_c10d:isend "
     "^torch.distributed.distributed_c10d:irecv ^torch.distributed.distributed_c10d:batch_isend_irecv "
     "^torch.distributed._functional_collectives: ^torch.distributed.nn.functional: "
     "^torch.distributed.pipelining.*:*wait ^deepspeed.comm. ^horovod.*:*synchronize ^mpi4py. "
     "^megatron.core.pipeline_parallel.p2p_communication: ^megatron.core.tensor_parallel.mappings:_"},
    {ARGUS_STACK_DATA_LOADING,
     "^torch.utils.data. ^torchdata. ^datasets. ^webdataset. ^streaming. ^nvidia.dali. ^petastorm. ^grain. "
     "^tensorflow.data ^tensorflow_datasets. ^accelerate.data_loader: ^lightning.*fetchers: "
     "^pytorch_lightning.*fetchers: ^lightning_fabric.*fetchers: ^megatron.core.datasets. "
     "^deepspeed.runtime.dataloader:"},
    {ARGUS_STACK_DEVICE_SYNC,
     "^torch.cuda:synchronize$ ^torch.cuda.streams:*synchronize$ ^torch.cuda.streams:*wait_event "
     "^torch.accelerator:synchronize$ ^torch.xpu:synchronize$ ^torch.npu:synchronize$ ^torch._tensor_str: "
     "^cupy.cuda.*synchronize ^jax._src.*:*block_until_ready"},
    {ARGUS_STACK_KERNEL_LAUNCH,
     "^torch.nn. ^torch.optim. ^torch._ops: ^torch.autograd. ^torch.functional: ^torch.amp. ^torch.cuda. "
     "^torch._tensor: ^torch._inductor. ^torch._functorch. ^torch._higher_order_ops. ^torch._library. "
     "^torch.library: ^torch.utils.checkpoint: ^torch.fx.graph_module: ^torch.fx.experimental. "
     "^torch.distributed.tensor. ^torch.distributed.fsdp. ^triton. ^transformer_engine. ^flash_attn. "
     "^xformers. ^apex. ^deepspeed.ops. ^fbgemm_gpu. ^liger_kernel."},
};
const size_t argus_stack_rule_count = sizeof argus_stack_rules / sizeof *argus_stack_rules;
