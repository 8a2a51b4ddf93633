/* ARGUS's own rules: the names that frameworks and people use.
 *
 * All are tied to the name's beginning, so that a name that none fits costs
 * little.  compute becomes mixed where only the host's clock is there
 * (events.c). */
#include "rules.h"

#define PHASE(target, pattern) target, pattern

const char *const argus_nvtx_defaults[] = {
    /* Iterations.  A + ends one where no range holds it. */
    PHASE("iteration", "^iteration*"),
    PHASE("iteration", "^train_step*"),
    PHASE("iteration", "^training_step*"),
    PHASE("iteration", "^train step*"),
    PHASE("iteration", "^training step*"),
    PHASE("iteration", "^profilerstep#*"),

    /* What people write by hand. */
    PHASE("forward:compute", "^forward$"),
    PHASE("forward:compute", "^forward?pass$"),
    PHASE("forward:compute", "^fwd$"),
    PHASE("loss:compute", "^loss$"),
    PHASE("backward:compute", "^backward$"),
    PHASE("backward:compute", "^backward?pass$"),
    PHASE("backward:compute", "^bwd$"),
    PHASE("optimizer:compute+", "^optimizer$"),
    PHASE("optimizer:compute+", "^optimizer?step$"),
    PHASE("optimizer:compute+", "^optimizer.step$"),
    PHASE("data_loading:host", "^data?loading$"),
    PHASE("data_loading:host", "^data?load$"),
    PHASE("data_loading:host", "^dataload*"),
    PHASE("data_loading:host", "^load?data$"),
    PHASE("pause:evaluation", "^evaluat*"),
    PHASE("pause:evaluation", "^validat*"),
    PHASE("pause:checkpoint", "^save?checkpoint*"), /* "checkpoint" alone may be of activations */

    /* torch.autograd.profiler.emit_nvtx: operators are left to the ranges around them. */
    PHASE("optimizer:compute+", "^optimizer.step#*"),
    PHASE("data_loading:host", "^enumerate(dataloader)#*"),
    PHASE("backward:compute", "^autograd::engine::evaluate_function:*"),
    PHASE("forward:compute", "^distributeddataparallel.forward$"),
    PHASE("forward:compute", "^fullyshardeddataparallel.forward$"),
    PHASE("all_gather:communication", "^fsdp::all_gather*"),
    PHASE("reduce_scatter:communication", "^fsdp::post_backward_reduce*"),

    /* Lightning's profiler actions, alone and as its PyTorchProfiler names them. */
    PHASE("iteration", "^[pl][profile]run_training_batch$"),
    PHASE("data_loading:host", "^[pl][profile][*].train_dataloader_next$"),
    PHASE("forward:compute", "^[pl][profile][strategy]*.training_step$"),
    PHASE("backward:compute", "^[pl][profile][strategy]*.backward$"),
    PHASE("optimizer:compute", "^[pl][profile][lightningmodule]*.optimizer_step$"),
    PHASE("pause:evaluation", "^[pl][profile][strategy]*.validation_step$"),
    PHASE("iteration", "^run_training_batch$"),
    PHASE("data_loading:host", "^[_trainingepochloop].train_dataloader_next$"),
    PHASE("forward:compute", "^[strategy]*.training_step$"),
    PHASE("backward:compute", "^[strategy]*.backward$"),
    PHASE("optimizer:compute", "^[lightningmodule]*.optimizer_step$"),
    PHASE("pause:evaluation", "^[strategy]*.validation_step$"),

    /* DeepSpeed's instrument_w_nvtx: the qualified names of its functions. */
    PHASE("forward:mixed", "^deepspeedengine.forward$"),
    PHASE("backward:mixed", "^deepspeedengine.backward$"),
    PHASE("grad_sync:communication", "^deepspeedengine.allreduce_gradients$"),
    PHASE("grad_sync:communication", "^pipelineengine.allreduce_gradients$"),
    PHASE("optimizer:mixed+", "^deepspeedzerooptimizer*.step$"),
    PHASE("all_gather:communication", "^partitionedparametercoordinator.__all_gather_params*"),
    PHASE("all_gather:communication", "^allgather*handle.wait$"),
    PHASE("all_gather:communication", "^init.*.all_gather_coalesced$"),
    PHASE("param_fetch:mixed", "^partitionedparametercoordinator.fetch_sub_module$"),
    PHASE("reduce_scatter:communication", "^reduce_scatter_coalesced$"),
    PHASE("reduce_scatter:communication", "^deepspeedzerooptimizer_stage3.__avg_scatter*"),

    /* Megatron-Core's nvtx_range_push: module, function, suffix. */
    PHASE("attention:compute", "^megatron.core.transformer.transformer_layer.*.self_attention$"),
    PHASE("attention:compute", "^megatron.core.transformer.transformer_layer.*.cross_attention$"),
    PHASE("mlp:compute", "^megatron.core.transformer.transformer_layer.*.mlp$"),
    PHASE("pipeline_warmup:mixed", "^megatron.core.pipeline_parallel.schedules.*.warmup$"),
    PHASE("pipeline_steady:mixed", "^megatron.core.pipeline_parallel.schedules.*.steady$"),
    PHASE("pipeline_cooldown:mixed+", "^megatron.core.pipeline_parallel.schedules.*.cooldown$"),
    /* The names of Megatron-LM's timers, which many turn into ranges. */
    PHASE("forward:compute", "^forward-compute$"),
    PHASE("backward:compute", "^backward-compute$"),
    PHASE("forward:compute", "^forward-step$"),
    PHASE("backward:compute", "^backward-step$"),
    PHASE("forward_backward:mixed", "^forward-backward$"),
    PHASE("send_recv:communication", "^forward-recv*"),
    PHASE("send_recv:communication", "^forward-send*"),
    PHASE("send_recv:communication", "^backward-recv*"),
    PHASE("send_recv:communication", "^backward-send*"),
    PHASE("grad_sync:communication", "^all-grads-sync$"),
    PHASE("grad_sync:communication", "^grads-reduce-scatter$"),
    PHASE("grad_sync:communication", "^grads-all-reduce$"),
    PHASE("grad_sync:communication", "^layernorm-grads-all-reduce$"),
    PHASE("grad_sync:communication", "^embedding-grads-all-reduce$"),
    PHASE("all_gather:communication", "^params-all-gather$"),
    PHASE("optimizer:compute", "^optimizer-*"),
    PHASE("data_loading:host", "^batch-generator$"),
    NULL,
};
