// The rules that relate several keys: those over keys alone, and all of them in the order of the documentation.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "config/job_rules.h"
#include "config/pair_transport.h"
#include "config/schedule_file.h"
#include "config/schema.h"
#include "config/tcp_place.h"
#include "core/axis.h"

namespace plait::config {
namespace {

std::int64_t kv_heads(const Config& c) { return c.model.kv_heads.value_or(c.model.heads); }

// 0 when hidden does not divide into heads.
std::int64_t head_dim(const Config& c) {
  if (!c.model.head_dim.is_auto()) return c.model.head_dim;
  return c.model.hidden % c.model.heads == 0 ? c.model.hidden / c.model.heads : 0;
}

std::int64_t pipeline_ranks(const Config& c) { return c.parallel.size[stage_axis]; }
const std::string segment_key = axis_key(segment_axis), pipeline_key = axis_key(stage_axis);

const ScheduleRow& row_of(const Config& c) { return schedule_row(c.parallel.schedule.value()); }

bool splits_backward(const ScheduleRow& row) { return row.splits_backward; }
bool keeps_backward_whole(const ScheduleRow& row) { return !row.splits_backward; }

// The message where `holds` is false.
std::string unless(bool holds, std::string message) { return holds ? std::string() : std::move(message); }

// Which transports go with how ranks are launched: for the reference, and why one does not (empty: it does).
constexpr const char* transports_by_mode =
    "`direct` needs `launch.mode: threads`; `ipc` and `vmm` need `processes` or `external`";
// `auto` is threads for who starts plait by hand; under an outside launcher the link between two processes says what is wrong
// with `direct`.
std::string other_mode_needed(const Auto<Transport>& transport, const Auto<LaunchMode>& mode) {
  const bool threads = mode.value_or(LaunchMode::threads) == LaunchMode::threads;
  if (transport == Transport::direct && !threads) {
    return fmt::format("needs ranks that are threads of one process, not launch.mode={}: vmm, ipc or host",
                       to_string(mode.value()));
  }
  return unless(
      !threads || (transport != Transport::ipc && transport != Transport::vmm),
      fmt::format("needs ranks that are processes, not launch.mode={}: direct or host", mode.is_auto() ? "auto" : "threads"));
}

// Why ranks on CPUs do not have this transport (empty: they do).
std::string of_gpus_only(const Auto<Transport>& transport, const Config& c) {
  const bool gpus = transport == Transport::ipc || transport == Transport::vmm || transport == Transport::relay;
  return unless(!gpus || c.launch.device != "cpu", "needs GPUs: must be auto, direct, host or nccl with launch.device=cpu");
}

// What `why` says of the first transport of comm.p2p_pairs that it finds fault with.
template <typename Why>
std::string of_first_pair(const Config& c, const Why& why) {
  for (const std::string& text : c.comm.p2p_pairs) {
    const auto pair = pair_transport(text);
    const std::string fault = pair ? why(pair->transport) : "";
    if (!fault.empty()) return text + " " + fault;
  }
  return "";
}

// Bytes of the model and of a step's activations, all kept and all as wide as they can be. As doubles: the products of what
// is allowed key by key do not fit into integers.
double most_bytes(const Config& c) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double layers = real(c.model.layers), hidden = real(c.model.hidden);
  const double ffn = c.model.ffn.is_auto() ? 4 * hidden : real(c.model.ffn);
  const double vocab = real(c.model.vocab.value_or(0)), sequence = real(c.data.sequence_length);
  const double width = real(c.model.head_dim.value_or(c.model.hidden / c.model.heads + 1));
  const double attention = (real(c.model.heads) + real(kv_heads(c))) * 2 * width;
  const double parameters = layers * hidden * (attention + 3 * ffn) +
                            hidden * (2 * vocab + std::max(sequence, real(c.model.max_sequence.value_or(0))));
  const double activations = layers * (8 * hidden + 3 * attention + 8 * ffn) + 4 * vocab;
  constexpr double widest = sizeof(double), copies = 5;  // weights, master weights, gradients, two moments
  return widest * (copies * parameters + real(c.train.global_batch) * sequence * activations);
}

// Of all axes but the first.
template <typename Make>
std::string other_axes(Make&& make) {
  return axes_text(AxisSet::all().without(axis_table.front().axis), " times ", make);
}

// Rules that hold where every key is within its own bounds, and all of them together are too much.
std::vector<CrossRule> size_rules() {
  return {
      {{"train.micro_batch", "data.sequence_length"},
       fmt::format("times `data.sequence_length` is at most {} tokens", limits::micro_batch_tokens),
       [](const Config& c) {
         return unless(c.train.micro_batch <= limits::micro_batch_tokens / c.data.sequence_length,
                       fmt::format("times data.sequence_length={} must be at most {} tokens", c.data.sequence_length,
                                   limits::micro_batch_tokens));
       }},
      {{"model.layers", "model.hidden", "model.heads", "model.kv_heads", "model.head_dim", "model.ffn", "model.vocab",
        "model.max_sequence", "data.sequence_length", "train.global_batch"},
       "with the other sizes of the model, `data.sequence_length` and `train.global_batch` makes at most 2^60 bytes of weights "
       "and activations",
       [](const Config& c) {
         const double bytes = most_bytes(c);
         return unless(bytes <= limits::bytes,
                       fmt::format("makes a model too large: its weights and the activations of train.global_batch={} * "
                                   "data.sequence_length={} tokens come to {:.1e} bytes, and must be at most 2^60; look at "
                                   "the sizes in model too",
                                   c.train.global_batch, c.data.sequence_length, bytes));
       }},
      {axis_keys(),
       fmt::format("times {} is at most {}", other_axes([](const AxisRow& row) { return "`" + axis_key(row.axis) + "`"; }),
                   limits::ranks.most),
       [](const Config& c) {
         std::int64_t ranks = 1;
         for (const AxisRow& row : axis_table) {
           ranks *= c.parallel.size[row.axis].value_or(1);
           if (ranks > limits::ranks.most) break;
         }
         return unless(ranks <= limits::ranks.most,
                       fmt::format("times {} must be at most {} ranks", other_axes([&](const AxisRow& row) {
                                     return fmt::format("{}={}", axis_key(row.axis), c.parallel.size[row.axis].value());
                                   }),
                                   limits::ranks.most));
       }},
  };
}

std::vector<CrossRule> study_rules() {
  const auto has = [](const Config& c, std::string_view key) {
    return std::ranges::any_of(c.study.axes, [&](const AxisConfig& axis) { return axis.key == key; });
  };
  return {
      {{"study.axes", "study.scaling"},
       "has `flops` and `parameters` with `study.scaling: isoflop`, and without it neither",
       [has](const Config& c) {
         const bool wanted = c.study.scaling == Scaling::isoflop;
         return unless(has(c, flops_axis) == wanted && has(c, parameters_axis) == wanted,
                       wanted ? "must have both flops and parameters, for study.scaling=isoflop"
                              : "has flops or parameters, which only study.scaling=isoflop takes");
       }},
      {{"study.measure.rounds", "study.scaling"},
       "is 1 with `study.scaling: isoflop`: the same seed gives the same loss",
       [](const Config& c) {
         return unless(c.study.scaling != Scaling::isoflop || c.study.measure.rounds == "1",
                       "must be 1 with study.scaling=isoflop: the same seed gives the same loss");
       }},
  };
}

std::vector<CrossRule> model_rules() {
  return {
      {{"model.heads", "model.hidden", "model.head_dim"},
       "divides `model.hidden` unless `model.head_dim` is given",
       [](const Config& c) {
         return unless(head_dim(c) > 0,
                       fmt::format("must divide model.hidden={} unless model.head_dim is given", c.model.hidden));
       }},
      {{"model.kv_heads", "model.heads"},
       "divides `model.heads`",
       [](const Config& c) {
         return unless(c.model.heads % kv_heads(c) == 0, fmt::format("must divide model.heads={}", c.model.heads));
       }},
      {{"model.rope_scaling.low_freq_factor", "model.rope_scaling.high_freq_factor"},
       "is below `model.rope_scaling.high_freq_factor`",
       [](const Config& c) {
         const RopeScalingConfig& s = c.model.rope_scaling;
         return unless(s.low_freq_factor < s.high_freq_factor,
                       fmt::format("must be below model.rope_scaling.high_freq_factor={}", s.high_freq_factor));
       }},
      {{"model.position", "model.heads", "model.hidden", "model.head_dim"},
       "`rope` needs an even head width",
       [](const Config& c) {
         return unless(c.model.position != Position::rope || head_dim(c) % 2 == 0,
                       fmt::format("rope rotates pairs: the head width must be a multiple of 2, not {}", head_dim(c)));
       }},
      {{"model.head_dim", "model.heads", "model.hidden", "precision.compute", "launch.device"},
       "the head width is a multiple of 8 for bf16 or `launch.device: cuda`",
       [](const Config& c) {
         const bool tensor_cores =
             c.precision.compute == "bf16" || (c.launch.device == "cuda" && c.precision.compute == "auto");
         return unless(!tensor_cores || head_dim(c) % 8 == 0,
                       fmt::format("the head width must be a multiple of 8 for bf16, not {}", head_dim(c)));
       }},
      {{"model.vocab", "data.tokenizer"},
       "is given (or a preset gives it) where the tokenizer is `tokens` or `random`",
       [](const Config& c) {
         const bool knows = c.data.tokenizer != "tokens" && c.data.tokenizer != "random";
         return unless(knows || !c.model.vocab.is_auto(),
                       fmt::format("must be given: data.tokenizer={} has no vocabulary of its own", c.data.tokenizer));
       }},
      {{"model.window_layers", "model.window", "model.layers"},
       "is given with `model.window` only, ascending, and below `model.layers`",
       [](const Config& c) {
         const std::vector<std::int64_t>& list = c.model.window_layers;
         if (list.empty()) return std::string();
         if (c.model.window.is_auto()) return std::string("needs model.window: the tokens that these layers see");
         if (std::ranges::adjacent_find(list, std::greater_equal<>()) != list.end())
           return std::string("must be ascending, each layer once");
         return unless(list.back() < c.model.layers,
                       fmt::format("must be below model.layers={}: layers are counted from 0", c.model.layers));
       }},
  };
}

std::vector<CrossRule> data_rules() {
  return {
      {{"data.train", "data.sources", "data.tokenizer"},
       "or `data.sources` is given unless the tokenizer is `random`",
       [](const Config& c) {
         return unless(c.data.tokenizer == "random" || !c.data.train.empty() || !c.data.sources.empty(),
                       "is required: a glob, or a list of them (or data.sources, with weights)");
       }},
      {{"data.sources", "data.train"},
       "is empty where `data.train` is given",
       [](const Config& c) {
         return unless(c.data.sources.empty() || c.data.train.empty(), "is given, and so is data.train: give one of them");
       }},
      {{"data.sentencepiece.vocab", "data.sentencepiece.model", "data.tokenizer"},
       "or `data.sentencepiece.model`, exactly one, with `sentencepiece`",
       [](const Config& c) {
         const bool train = !c.data.sentencepiece.vocab.is_auto(), load = !c.data.sentencepiece.model.empty();
         return unless(c.data.tokenizer != "sentencepiece" || train != load,
                       train ? "give either vocab (train a model) or model (load one), not both"
                             : "is required, to train a model of that size; or data.sentencepiece.model, to load one");
       }},
      {{"data.tokenizer", "data.sentencepiece.vocab", "data.sentencepiece.model"},
       "is `sentencepiece` where `data.sentencepiece` is given",
       [](const Config& c) {
         const bool given = !c.data.sentencepiece.vocab.is_auto() || !c.data.sentencepiece.model.empty();
         return unless(c.data.tokenizer == "sentencepiece" || !given, "must be sentencepiece, as data.sentencepiece is given");
       }},
      {{"data.huggingface.file", "data.tokenizer"},
       "is given with `huggingface`",
       [](const Config& c) {
         return unless(c.data.tokenizer != "huggingface" || !c.data.huggingface.file.empty(),
                       "is required: the path of a tokenizer.json");
       }},
      {{"data.tokenizer", "data.huggingface.file"},
       "is `huggingface` where `data.huggingface` is given",
       [](const Config& c) {
         return unless(c.data.tokenizer == "huggingface" || c.data.huggingface.file.empty(),
                       "must be huggingface, as data.huggingface is given");
       }},
      {{"data.custom_template.assistant_end", "data.chat_template"},
       "is given where `data.chat_template` is `custom`",
       [](const Config& c) {
         return unless(c.data.chat_template != ChatFormat::custom || !c.data.custom_template.assistant_end.empty(),
                       "is required: without it a model never learns to end its turn");
       }},
      {{"data.chat_template", "data.custom_template.assistant_end"},
       "is `custom` where `data.custom_template` is given",
       [](const Config& c) {
         return unless(c.data.chat_template == ChatFormat::custom || c.data.custom_template == CustomTemplateConfig{},
                       "must be custom, as data.custom_template is given");
       }},
      {{"data.document_token.id", "data.tokenizer"},
       "is -1 where the tokenizer is `bytes`",
       [](const Config& c) {
         return unless(c.data.document_token.id < 0 || c.data.tokenizer != "bytes",
                       "must be -1 with data.tokenizer=bytes, of which every token stands for a byte of text");
       }},
  };
}

std::vector<CrossRule> train_rules() {
  return {
      {{"train.optimizer.warmup", "train.steps"},
       "is at most `train.steps`",
       [](const Config& c) {
         return unless(c.train.optimizer.warmup <= c.train.steps, fmt::format("must be at most train.steps={}", c.train.steps));
       }},
      {{"train.optimizer.decay_steps", "train.optimizer.warmup", "train.steps"},
       "with `train.optimizer.warmup` is at most `train.steps`",
       [](const Config& c) {
         const OptimizerConfig& o = c.train.optimizer;
         return unless(o.decay_steps.value_or(0) <= std::max<std::int64_t>(0, c.train.steps - o.warmup),
                       fmt::format("must be at most train.steps={} less train.optimizer.warmup={}", c.train.steps, o.warmup));
       }},
      {{"train.init_from.optimizer", "train.init_from.path"},
       "needs `train.init_from.path`",
       [](const Config& c) {
         return unless(!c.train.init_from.optimizer || !c.train.init_from.path.empty(),
                       "needs train.init_from.path (--init-from): the run or checkpoint to take it from");
       }},
  };
}

// Of a key that can ask for collectives by links.
CrossRule needs_holding_links(std::string key, Auto<CollectiveWay> CommConfig::* way) {
  return {{key, "comm.p2p"},
          "`links` needs a `comm.p2p` other than `nccl`, which holds no message until it is taken",
          [key, way](const Config& c) {
            return unless(c.comm.*way != CollectiveWay::links || c.comm.p2p != Transport::nccl,
                          "links hold messages until they are taken, and comm.p2p=nccl does not: needs another comm.p2p, or " +
                              key + "=library");
          }};
}

std::vector<CrossRule> layout_rules() {
  return {
      {{"parallel.stages", pipeline_key, "parallel.virtual_stages", "parallel.schedule", "model.layers"},
       "has one number per stage, adding up to `model.layers`; only the first and the last may be 0",
       [](const Config& c) {
         const std::vector<double>& given = c.parallel.stages;
         if (given.empty()) return std::string();
         const auto count = static_cast<std::int64_t>(given.size());
         const std::int64_t wanted = facts_of(c).stage_count().value();
         if (count != wanted) return fmt::format("must have {} numbers, one per stage, not {}", wanted, count);
         const auto layers = static_cast<double>(c.model.layers);
         double sum = 0;  // of halves, so exact
         for (std::int64_t i = 0; i < count; ++i) {
           const double blocks = given[static_cast<std::size_t>(i)];
           if (blocks == 0 && i > 0 && i < count - 1)
             return fmt::format("stage {} is empty: it must hold at least half a block", i);
           if (blocks > layers - sum) return fmt::format("must add up to model.layers={}, but is more", c.model.layers);
           sum += blocks;
         }
         return unless(sum == layers, fmt::format("must add up to model.layers={}, not {}", c.model.layers, sum));
       }},
      {{"parallel.zero", "parallel.schedule", pipeline_key, "model.tie_embeddings"},
       "is at most 1 with " + listed_schedules(splits_backward) +
           ", and with a file that splits backward or has a tied embedding and the head on one rank",
       [](const Config& c) {
         const ScheduleFile* file = c.parallel.schedule_file.get();
         if (c.parallel.zero < 2 || (pipeline_ranks(c) == 1 && file == nullptr)) return std::string();
         if (file != nullptr ? file->splits_backward : splits_backward(row_of(c))) {
           return fmt::format(
               "must be 0 or 1 with parallel.schedule={}: it computes weight gradients long after their "
               "inputs', so whole gradients stay in use; ZeRO-2 works with {}",
               schedule_name(c.parallel), listed_schedules(keeps_backward_whole, ""));
         }
         // Of the built-in ones, those whose ends meet split backward.
         const bool ends_meet =
             file != nullptr && file->rank_of_stage.size() > 1 && file->rank_of_stage.front() == file->rank_of_stage.back();
         const bool shared = c.model.tie_embeddings && ends_meet;
         return unless(!shared, fmt::format("must be 0 or 1 with parallel.schedule={} and model.tie_embeddings: embedding and "
                                            "head add to one table on one rank, at different times of a micro-batch",
                                            schedule_name(c.parallel)));
       }},
      {{"placement.devices", "placement.strategy"},
       "is given with `strategy: explicit`, and only then",
       [](const Config& c) {
         return unless((c.placement.strategy == PlacementStrategy::given) == !c.placement.devices.empty(),
                       c.placement.devices.empty() ? "is required with placement.strategy=explicit: the GPU of each rank"
                                                   : "must be empty unless placement.strategy=explicit");
       }},
      {{"launch.rendezvous", "launch.mode"},
       "is required with `launch.mode: external`, and given with it or `auto` only",
       [](const Config& c) {
         const bool external = c.launch.mode == LaunchMode::external;
         return unless(c.launch.mode.is_auto() || external != c.launch.rendezvous.empty(),
                       external ? "is required with launch.mode=external: a directory that all ranks share, or tcp"
                                : "has a meaning with launch.mode=external or auto only");
       }},
      {{"launch.token_file", "launch.rendezvous"},
       "is given with `launch.rendezvous: tcp` only",
       [](const Config& c) {
         return unless(c.launch.token_file.empty() || tcp_place(c.launch.rendezvous),
                       "has a meaning with launch.rendezvous=tcp only");
       }},
      {{"comm.backend", "launch.device"},
       "is `nccl` or `auto` on GPUs, `gloo` or `auto` on CPUs",
       [](const Config& c) {
         const bool crossed = (c.comm.backend == Backend::nccl && c.launch.device == "cpu") ||
                              (c.comm.backend == Backend::gloo && c.launch.device == "cuda");
         return unless(!crossed, fmt::format("must be auto or {} with launch.device={}",
                                             c.launch.device == "cpu" ? "gloo" : "nccl", c.launch.device));
       }},
      {{"comm.mover", "launch.device"},
       "`sm_write` and `sm_read` need GPUs",
       [](const Config& c) {
         const bool kernel = c.comm.mover == Mover::sm_write || c.comm.mover == Mover::sm_read;
         return unless(!kernel || c.launch.device != "cpu",
                       "kernels need GPUs: must be auto or copy_engine with launch.device=cpu");
       }},
      {{"comm.p2p", "launch.device"},
       "`ipc`, `vmm` and `relay` need GPUs",
       [](const Config& c) { return of_gpus_only(c.comm.p2p, c); }},
      {{"comm.p2p_pairs", "launch.device"},
       "`ipc`, `vmm` and `relay` need GPUs",
       [](const Config& c) { return of_first_pair(c, [&](Transport transport) { return of_gpus_only(transport, c); }); }},
      {{"comm.p2p", "launch.mode"},
       transports_by_mode,
       [](const Config& c) {
         const std::string why = other_mode_needed(c.comm.p2p, c.launch.mode);
         return why.empty() ? why : why + ", or auto";
       }},
      {{"comm.p2p_pairs", "launch.mode"},
       transports_by_mode,
       [](const Config& c) {
         return of_first_pair(c, [&](Transport transport) { return other_mode_needed(transport, c.launch.mode); });
       }},
      {{"comm.peer_access", "comm.p2p", "comm.p2p_pairs"},
       "`off` leaves `host` and `nccl` of `comm.p2p`",
       [](const Config& c) {
         if (c.comm.peer_access != PeerAccessUse::off) return std::string();
         const auto needs_it = [](const Auto<Transport>& t) { return !t.is_auto() && needs_peer_access(t.value()); };
         std::string key = needs_it(c.comm.p2p) ? "comm.p2p=" + to_string(c.comm.p2p.value()) : "";
         for (const std::string& text : c.comm.p2p_pairs) {
           const auto pair = pair_transport(text);
           if (pair && needs_it(pair->transport)) key = "comm.p2p_pairs: " + text;
         }
         return key.empty() ? key : key + " needs peer access: must be auto, or take host or nccl there";
       }},
      {{"comm.peer_access", "comm.require"},
       "`off` leaves nothing of `comm.require: p2p`",
       [](const Config& c) {
         return unless(c.comm.peer_access != PeerAccessUse::off || c.comm.require != RequiredPath::p2p,
                       "nothing goes from GPU to GPU without peer access, which comm.require=p2p asks for");
       }},
      {{"train.graph", pipeline_key, segment_key, "comm.exchanges", axis_key(reduced_axis), "comm.reductions"},
       fmt::format("`on` is for jobs without links: `{}` 1, `comm.exchanges: library` where `{}` is above 1, and no "
                   "`comm.reductions: links` where `{}` is",
                   pipeline_key, segment_key, axis_key(reduced_axis)),
       [](const Config& c) {
         if (c.train.graph != GraphUse::on) return std::string();
         std::string links;
         if (pipeline_ranks(c) > 1) links = fmt::format("{}={}", pipeline_key, pipeline_ranks(c));
         for (const AxisRow& row : axis_table) {
           if (c.parallel.size[row.axis].value_or(1) > 1 && c.comm.way_along(row.axis) == CollectiveWay::links)
             links = way_key(row.way) + "=links";
         }
         const std::string why = ": links have no place in a step's CUDA graph; auto, instructions or off";
         return unless(links.empty(), "cannot be on with " + links + why);
       }},
      {{"launch.ranks_per_device", "launch.mode", "comm.backend", "comm.p2p", "comm.p2p_pairs", "comm.exchanges",
        "comm.reductions", "train.graph"},
       "other than 1 is for ranks that are threads: with `launch.mode` `auto` or `threads`, `comm.backend` not `nccl`, "
       "`comm.p2p` `auto` or `direct`, no "
       "`comm.p2p_pairs`, `comm.exchanges` and `comm.reductions` `auto` or `links`, and `train.graph` not `on`",
       [](const Config& c) {
         if (!c.launch.may_share_devices()) return std::string();
         std::string other;
         if (c.launch.mode.value_or(LaunchMode::threads) != LaunchMode::threads)
           other = "launch.mode=" + to_string(c.launch.mode.value());
         if (c.comm.p2p.value_or(Transport::direct) != Transport::direct) other = "comm.p2p=" + to_string(c.comm.p2p.value());
         if (!c.comm.p2p_pairs.empty()) other = "comm.p2p_pairs";
         if (c.comm.exchanges == CollectiveWay::library) other = "comm.exchanges=library";
         if (c.comm.reductions == CollectiveWay::library) other = "comm.reductions=library";
         if (c.comm.backend == Backend::nccl) other = "comm.backend=nccl";
         if (c.train.graph == GraphUse::on) other = "train.graph=on";
         return unless(other.empty(), "must be 1 with " + other +
                                          ": ranks that share a device are threads, which the library does not serve, and go "
                                          "by direct links");
       }},
      needs_holding_links(way_key(WayKey::exchanges), &CommConfig::exchanges),
      needs_holding_links(way_key(WayKey::reductions), &CommConfig::reductions),
      {{"precision.moments", "precision.compute"},
       "is `fp32` with `precision.compute: fp64`, whose moments are fp64",
       [](const Config& c) {
         return unless(
             c.precision.moments != "bf16" || c.precision.compute != "fp64",
             "must be fp32 with precision.compute=fp64: moments of such runs are fp64; or set precision.compute=fp32");
       }},
  };
}

// Those over what a job is made of, as far as a configuration says it.
std::vector<CrossRule> rules_of_facts() {
  std::vector<CrossRule> rules;
  for (const JobRule& rule : job_rules()) {
    const auto broken = [&rule](const Config& c) { return rule.answer(facts_of(c)).why; };
    rules.push_back({rule.keys, rule.words, broken, true});
  }
  return rules;
}

}  // namespace

const std::vector<CrossRule>& cross_rules() {
  static const std::vector<CrossRule> all = [] {
    std::vector<CrossRule> rules;
    for (auto* part : {size_rules, model_rules, data_rules, train_rules, rules_of_facts, layout_rules, study_rules}) {
      for (CrossRule& rule : part()) rules.push_back(std::move(rule));
    }
    return rules;
  }();
  return all;
}

}  // namespace plait::config
