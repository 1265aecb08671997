// plait import HF_DIR --out RUN_DIR, plait export RUN_OR_CHECKPOINT --out HF_DIR
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "core/message.h"
#include "interop/foreign_models.h"
#include "interop/weights.h"
#include "interruptible_task.h"
#include "usage.h"

namespace plait {
namespace {

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) message_to_stderr(note);
}

template <typename Request, typename Work>
std::vector<std::string> with_progress(const char* what, Request request, Work&& work) {
  InterruptibleTask task(what);
  request.progress = task.callback();
  return work(request);
}

}  // namespace

void add_import_commands(CLI::App& app, int& status) {
  auto in = std::make_shared<interop::ImportRequest>();
  CLI::App* import = app.add_subcommand("import", "Take over a model of Hugging Face transformers");
  import->add_option("HF_DIR", in->model, "Directory with config.json, safetensors and tokenizer")->required();
  import->add_option("--out", in->out, "Run directory to make")->required()->type_name("RUN_DIR");
  import->callback([in, &status] {
    print_notes(with_progress("importing", *in, interop::import_model));
    status = 0;
  });

  auto out = std::make_shared<interop::ExportRequest>();
  auto dtype = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("export", "Write a trained model for Hugging Face transformers");
  command
      ->add_option("RUN_OR_CHECKPOINT", out->run_or_checkpoint,
                   "A run directory, whose newest checkpoint is taken, or a checkpoint")
      ->required();
  command->add_option("--out", out->out, "Directory to make")->required()->type_name("HF_DIR");
  command
      ->add_option(
          "--dtype", *dtype,
          "Of the tensors: f32, f16 or bf16; by default as they were imported, else as precision.compute says (auto: f32)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command->add_option("--max-shard-bytes", out->most_bytes, "Of one safetensors file")
      ->capture_default_str()
      ->check(whole_number(out->most_bytes, 1));
  command->callback([out, dtype, &status] {
    out->dtype = interop::weight_type_named(*dtype);
    print_notes(with_progress("exporting", *out, interop::export_model));
    status = 0;
  });
}

}  // namespace plait
