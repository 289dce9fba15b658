"""DPView: views chosen from public sizes alone, noisy view tables made consistent, records linked from them."""
