/* The built-in rules, in the order in which they are tried: what names a kernel
 * more exactly stands before what names it loosely.
 *
 * IN_HEAD looks at the function with its namespaces only, since template
 * arguments are full of other kernels' words; IN_ARGUMENTS is for wrappers
 * whose own name says nothing.  Names were taken from the libraries' binaries
 * and from traces; tests/data/kernel_names.txt lists them with their class.
 */
#include "kernel_text.h"

const struct argus_kernel_rule argus_kernel_rules[] = {
    /* Kineto, nsys and ROCm name copies and fills so. */
    {ARGUS_KERNEL_MEMCPY, ARGUS_IN_WHOLE, "^memcpy??to? ^[cuda?memcpy __amd_rocclr_copy"},
    {ARGUS_KERNEL_MEMSET, ARGUS_IN_WHOLE, "^memset?( ^[cuda?memset __amd_rocclr_fill"},

    /* torch.compile: the kind of kernel, then every operation that was fused into it.  Before communication,
     * since a fused wait_tensor leaves the collective's name in a kernel that computes. */
    {ARGUS_KERNEL_ATTENTION, ARGUS_IN_HEAD, "^triton_tem_*attention"},
    {ARGUS_KERNEL_GEMM, ARGUS_IN_HEAD, "^triton_tem_ ^triton_mm ^triton_bmm ^triton_gemm ^gemm_fusion"},
    {ARGUS_KERNEL_OPTIMIZER, ARGUS_IN_HEAD, "^triton_for_ ^triton_*_foreach_ ^triton_*adam ^triton_*addcdiv"},
    {ARGUS_KERNEL_REDUCTION, ARGUS_IN_HEAD, "^triton_red_*vector_norm ^triton_per_*vector_norm"},
    {ARGUS_KERNEL_NORMALIZATION, ARGUS_IN_HEAD,
     "^triton_red_*_norm ^triton_per_*_norm ^triton_red_*rsqrt ^triton_per_*rsqrt"},
    {ARGUS_KERNEL_EMBEDDING, ARGUS_IN_HEAD,
     "^triton_poi_*embedding ^triton_red_*embedding ^triton_per_*embedding"},
    {ARGUS_KERNEL_REDUCTION, ARGUS_IN_HEAD,
     "^triton_red_ ^triton_per_ ^triton_split_scan_ ^triton_spl_ ^triton_softmax ^input_reduce ^reduce_fusion"},
    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_HEAD, "^triton_poi_ ^triton_fused_ ^loop_ ^wrapped_"},

    /* Communication, and what is fused with it: all of it can spin on a peer.  One name holds several of
     * these words (ReduceScatter's RailA2A, AllReduce's RS and AG), so the order counts. */
    {ARGUS_KERNEL_MOE, ARGUS_IN_HEAD,
     "get_dispatch_layout hybrid_ep::*scan hybrid_ep::*permute nccl_ep::ht:: nccl_ep_jit_*scan "
     "nccl_ep_jit_build"},
    {ARGUS_KERNEL_ALL_REDUCE, ARGUS_IN_HEAD,
     "allreduce all_reduce cross_device_reduce_?stage cross_device_reduce_??stage lamport_rms "
     "rms_kernel_lamport rms_lamport userbuffers_*_rr$ userbuffers_*_rw$ userbuffers_*_mc$"},
    {ARGUS_KERNEL_REDUCE_SCATTER, ARGUS_IN_HEAD,
     "reducescatter reduce_scatter userbuffers_*_rs$ userbuffers_*_rs_ gemm_rs"},
    {ARGUS_KERNEL_ALL_GATHER, ARGUS_IN_HEAD,
     "allgather all_gather userbuffers_*_ag ag_gemm multimem*gather gather_multimem"},
    {ARGUS_KERNEL_ALL_TO_ALL, ARGUS_IN_HEAD,
     "alltoall all_to_all a2a_ deep_ep:: internode:: intranode:: internode_ll:: nccl_ep hybrid_ep epdispatch "
     "epcombine dispatch_send dispatch_recv combine_send combine_recv exchangesplitandoffset"},
    {ARGUS_KERNEL_BROADCAST, ARGUS_IN_HEAD, "nccl*broadcast rccl*broadcast ^broadcast"},
    {ARGUS_KERNEL_REDUCE, ARGUS_IN_HEAD,
     "multimem_one_shot_reduce ncclkernel_reduce nccldevkernel_reduce ncclreduce tile_reduce_kernel"},
    {ARGUS_KERNEL_SEND_RECV, ARGUS_IN_HEAD,
     "nccl*sendrecv nccl*send_recv lsa_put lsa_get put_signal wait_signal wait_for_signal userbuffers_push "
     "userbuffers_pull nvshmem*put nvshmem*get"},
    {ARGUS_KERNEL_COMMUNICATION_OTHER, ARGUS_IN_HEAD,
     "^nccl ^rccl diagp2p ^msccl mscclpp:: nvshmem symmetric_memory:: multimem kernel_barrier barrier_kernel "
     "userbuffers lamport ^consumer_kernel ^consumer_batch_kernel ^producer_kernel"},

    /* Attention and the other mixers of sequences (state spaces, linear attention). */
    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_HEAD,
     "hadamard kv_cache reshape_and_cache concat_and_cache concat_mla concatmla fused_attn:: "
     "convert_vertical_slash transform_bias_rescale_qkv quant_deep_gemm transfer_kernel transfer_page"},
    {ARGUS_KERNEL_ATTENTION, ARGUS_IN_HEAD,
     "fmha sdpa attention attn flash_fwd flash_bwd flash:: dot_do_o mha_ _mha mqa_ gqa_ splitkv flash_mla "
     "sparse_mla mla_decode mla_combine mla_metadata lse_combine batchprefill batchdecode singleprefill "
     "singledecode mergestate context_parallel::thd_lse thd_out_correction thd_grad_correction "
     "scaled_upper_triang scaled_masked_softmax scaled_aligned scaled_softmax masked_softmax_warp ^_fwd_kernel "
     "^_bwd_kernel ^_bwd_preprocess ^_fwd_grouped_kernel selective_scan chunk_scan chunk_state state_passing "
     "chunk_cumsum chunk_bwd chunk_fwd chunk_gated chunk_kda delta_rule gated_delta _retention fused_recurrent "
     "wkv mamba ssm_ gla_ gdn_ kda_"},

    /* FBGEMM: sparse features and embedding tables, but for its conversions. */
    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_HEAD,
     "fbgemm_gpu::*quantize fbgemm_gpu::*_to_float fbgemm_gpu::*fp8 fbgemm_gpu::*float_to "
     "fbgemm_gpu::*bfloat16 _float_to_bfloat16 bfloat16_to_float"},
    {ARGUS_KERNEL_GEMM, ARGUS_IN_HEAD, "fbgemm_gpu::*bmm"},
    {ARGUS_KERNEL_EMBEDDING, ARGUS_IN_HEAD,
     "fbgemm_gpu:: embedding_*codegen vbe_metadata cache_indices lxu_ lru_ lfu_"},

    /* Mixture of experts: routing and the moving of tokens; the experts' products are gemm. */
    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_HEAD, "cvt_fp experts_quant"},
    {ARGUS_KERNEL_GEMM, ARGUS_IN_HEAD,
     "fused_moe_kernel fused_moe::run moe_gemm moe_gemv moe_mm moe_*gemm gemm*moe moe_w?a?? moe_wna16 moe_q "
     "moe_vec_q"},
    {ARGUS_KERNEL_MOE, ARGUS_IN_HEAD,
     "moe routing expertprefix expertmap expert_map topkgating topk_gating grouped_topk group_topk router:: "
     "unpermute ^_permute_kernel ^permute_kernel sort_chunks chunk_sort_map row_id_map row_map expert_tokens "
     "expert_offset expertoffset expert_blockscale compute_problem_sizes expandinputrows shuffleinputrows "
     "shufflerows topkid padded_copy binned_copy"},

    {ARGUS_KERNEL_NORMALIZATION, ARGUS_IN_HEAD, "gemma*norm"}, /* a model whose name begins with gemm */
    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_HEAD, "gemma*rotary gemma*rope"},
    {ARGUS_KERNEL_GEMM, ARGUS_IN_HEAD,
     "gemm gemv xmma nvjet splitkred splitk_ split_k_ fft?d_ rnn_persist rnn_blockpersist ampere_lstm "
     "volta_lstm matmul mat_mul mul_mat _mm_ _mm$ ^mm_ bmm addmm scaled_mm grouped_mm group_mm cijk_ tensorop "
     "marlin machete exllama implicit_con winograd dgrad wgrad fprop convolution convolve conv1d conv2d conv3d "
     "convnd depthwise im2col col2im vol2col vol2im scudnn cudnn_ s1688 s16816 h1688 s884 h884 ^_5x_cudnn "
     "epilogue::impl bmn_bnk bhd_hdr bhr_hdr dense_kernel semi_structured trsm trsv trmm trmv symv syhem getri "
     "syrk herk_ trtri getf2 getrf potrf potf2 geqr larft larfb laswp laset lacpy lascl _cger _zger _dger "
     "_sger ipiv pivinfo displace_pointers magma_ spmm sddmm sputnik::kernel gptq:: sytrd syev heevd heevj "
     "stedc ormtr orgqr gesvd newton_schulz"},

    {ARGUS_KERNEL_OPTIMIZER, ARGUS_IN_HEAD,
     "multi_tensor_apply multi_tensor_l2norm multi_tensor_lamb adam lamb_ lambstage adagrad adafactor adadelta "
     "novograd rmsprop optimizer _sgd sgd_ fusedsgd _lion lion_ muon shampoo amp_update_scale "
     "update_scale_hysteresis lpnorm_cleanup lpmax_cleanup"},

    {ARGUS_KERNEL_NORMALIZATION, ARGUS_IN_HEAD,
     "layer_norm layernorm rms_norm rmsnorm batch_norm batchnorm group_norm groupnorm instance_norm "
     "instancenorm weight_norm l2norm qknorm qk_norm qnorm normalization:: norm_rope ln_fwd ln_bwd ln_parallel "
     "bn_fw bn_bw bnfwd bnbwd bnstats rowwisemoments gammabeta fusedparams internalgradients welford "
     "cucomputegradinput cucomputepartgrad _norm_ norm_fwd norm_bwd normkernel norm_kernel renormrows"},

    /* Before embedding: these gather, but in order to select or to sort. */
    {ARGUS_KERNEL_REDUCTION, ARGUS_IN_HEAD,
     "sampling:: gathermedian gatherkth topk softmax radixsort radix_sort mergesort merge_sort"},
    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_HEAD,
     "rotary rope timestep_embedding pos_emb position_embed gather_and_maybe_dequant split_with_sizes"},
    {ARGUS_KERNEL_EMBEDDING, ARGUS_IN_HEAD,
     "embedding gather scatter indexselect index_select indexfunc index_put index_elementwise index_copy "
     "index_add index_fill indexing_backward indexingbackward compute_grad_weight krn_partial num_of_partial "
     "permute_pooled permute_1d permute_2d permute_indices linearize_index linearize_cache "
     "bounds_check_indices direct_mapped_l jagged ngram vocab"},

    {ARGUS_KERNEL_REDUCTION, ARGUS_IN_HEAD,
     "reduce reduction scan cumsum cumprod _sort sort_ sortkv argsort bitonic topk top_k unique histogram "
     "argmax argmin amax amin absmax cross_entropy crossentropy loss logsumexp kl_div sampling multinomial "
     "speculative pool median compute_mode kthvalue search adjacent_difference adjacentdifference deviceselect "
     "devicecompact devicepartition runlength run_length cdist pdist adaptive sparse_sum gloo::_kernel "
     "compute_agg block_sums per_block_scale dot_kernel nrm2 asum minmax max_kernel sum_kernel mean_kernel "
     "finishtwoshot"},

    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_HEAD,
     "elementwise elemwise pointwise catarray cat_ copy cast transpose quant convert cvt_ dropout fill zero "
     "one_device rand uniform normal_ distribution philox bernoulli gelu silu swish swiglu geglu glu_ relu "
     "_situ_ sigmoid tanh softcap activation gated_act unary binary bias scale mask tril triu range flip roll "
     "pad upsample interpolate grid_sampl affine_grid scal_kernel axpy swap set_ memset memcpy generic_tensor "
     "concat _clip resize expandkernel swizzle packbits pack_ repack permute sparsify transform for_each "
     "static_kernel nchw nhwc op_tensor tensor_op optensor add_ _add mul_ _mul sub_ div_ lstm gru_cell rnn_ "
     "clamp where lerp cross_kernel apply_kernel sparse_apply sparse24_apply coalesce write_indices "
     "wrap_indices checkfornan assert_async nan_ splits_to offsets_kernel tensor_offsets chunk_cat reorder "
     "unfold ^compute_cuda_kernel linspace logspace eltwise complex conj"},

    /* Wrappers: the arguments tell. */
    {ARGUS_KERNEL_ATTENTION, ARGUS_IN_ARGUMENTS,
     "flashattn flash_attn fmha attention sm90flash flashmla mhafwd mhabwd"},
    {ARGUS_KERNEL_GEMM, ARGUS_IN_ARGUMENTS,
     "gemm implicit cutlass*conv tensorop matmul mainloop collectivemma cublas"},
    {ARGUS_KERNEL_NORMALIZATION, ARGUS_IN_ARGUMENTS, "layernorm rmsnorm batchnorm groupnorm"},
    {ARGUS_KERNEL_REDUCTION, ARGUS_IN_ARGUMENTS,
     "softmax __reduce __scan __unique radixsort radix_sort mergesort uniqueby reduceop"},
    {ARGUS_KERNEL_OPTIMIZER, ARGUS_IN_ARGUMENTS, "adamfunctor sgdfunctor lambfunctor"},
    {ARGUS_KERNEL_ELEMENTWISE, ARGUS_IN_ARGUMENTS, "parallel_for parallelfor __transform unaryop __fill"},
    /* Libraries whose kernels that say no more are products. */
    {ARGUS_KERNEL_GEMM, ARGUS_IN_HEAD,
     "cutlass ^ampere_ ^turing_ ^volta_ ^maxwell_ ^pascal_ ^hopper_ ^sm70_ ^sm75_ ^sm80_ ^sm86_ ^sm89_ ^sm90_ "
     "^sm100_ ^sm120_ magma cublas ck::kernel"},
};

const size_t argus_kernel_rule_count = sizeof argus_kernel_rules / sizeof *argus_kernel_rules;
