// plait sample WEIGHTS --prompt TEXT
#include <iostream>
#include <memory>

#include "commands.h"
#include "core/device.h"
#include "train/sampler.h"
#include "usage.h"

namespace plait {

void add_sample_command(CLI::App& app, int& status) {
  auto request = std::make_shared<train::SampleRequest>();
  auto cpu = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("sample", "Generate text with a trained model");
  command->add_option("WEIGHTS", request->weights, "A run directory, a checkpoint, or a model of Hugging Face transformers")
      ->required();
  command->add_option("--prompt", request->prompt, "Text to continue")->required();
  command->add_option("--tokens", request->tokens, "Tokens to generate")
      ->capture_default_str()
      ->check(whole_number(request->tokens, 1));
  command->add_option("--temperature", request->temperature, "0: always the likeliest token")
      ->capture_default_str()
      ->check(number_in(0, 1e6));
  command->add_option("--top-k", request->top_k, "Draw from the k likeliest tokens; 0: from all")
      ->capture_default_str()
      ->check(whole_number(request->top_k, 0));
  command->add_option("--seed", request->seed, "Seed of the random draws")
      ->capture_default_str()
      ->check(whole_number(request->seed));
  command->add_flag("--cpu", *cpu, "On the CPU even where there is a GPU");
  command->callback([request, cpu, &status] {
    const bool gpu = !*cpu && cuda_device_count() > 0;
    train::sample(*request, {gpu ? DeviceKind::cuda : DeviceKind::host, 0},
                  [](const std::string& text) { std::cout << text << std::flush; });
    std::cout << '\n';
    status = 0;
  });
}

}  // namespace plait
