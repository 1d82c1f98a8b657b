"""What a trained model is used for: predictions, representations, explanations, exported programs, run folders."""
