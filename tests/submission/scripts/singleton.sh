#!/bin/bash
#SBATCH --dependency=singleton
#SBATCH --job-name=nightly
